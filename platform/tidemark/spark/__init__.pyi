from .env.jvm import start_jvm as start_jvm
from .env.start.session_settings import SETTINGS as SETTINGS
from .env.start.session_settings import local_settings as local_settings
from .loop.run import run as run
