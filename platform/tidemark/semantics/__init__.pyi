from .assigners import CountWindows as CountWindows
from .assigners import Cumulative as Cumulative
from .assigners import GlobalWindows as GlobalWindows
from .assigners import Sliding as Sliding
from .assigners import Tumbling as Tumbling
from .watermarks import MAX_WATERMARK as MAX_WATERMARK
from .watermarks import MIN_WATERMARK as MIN_WATERMARK
