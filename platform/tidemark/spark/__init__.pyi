from .env.jvm import start_jvm as start_jvm
from .env.session import SETTINGS as SETTINGS
from .env.session import local_settings as local_settings
from .loop.run import run as run
