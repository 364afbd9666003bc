from .jvm import start_jvm as start_jvm
from .run import run as run
from .session import SETTINGS as SETTINGS
from .session import local_settings as local_settings
