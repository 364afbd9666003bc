from .crash import CrashTestError as CrashTestError
from .crash import Ending as Ending
from .crash import run_until_crash as run_until_crash
from .harness import OperatorHarness as OperatorHarness
from .manual_clock import ManualClock as ManualClock
