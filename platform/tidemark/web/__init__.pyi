from .access.tokens import Token as Token
from .access.tokens import Tokens as Tokens
from .access.tokens import load_tokens as load_tokens
from .server.app import build_app as build_app
from .server.serving import UiServer as UiServer
from .server.serving import serve as serve
