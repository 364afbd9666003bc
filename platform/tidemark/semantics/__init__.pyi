from .watermarks.watermarks import MAX_WATERMARK as MAX_WATERMARK
from .watermarks.watermarks import MIN_WATERMARK as MIN_WATERMARK
from .windows.assigners import CountWindows as CountWindows
from .windows.assigners import Cumulative as Cumulative
from .windows.assigners import GlobalWindows as GlobalWindows
from .windows.assigners import Sliding as Sliding
from .windows.assigners import Tumbling as Tumbling
from .windows.local_windows import LocalWindows as LocalWindows
