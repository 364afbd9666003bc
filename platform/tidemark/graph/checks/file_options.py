"""The options of Spark's readers of files: it takes any name, and leaves one out that it does not know without a word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.errors import DefinitionError

OF_READERS: Final[Mapping[str, frozenset[str]]] = {
    "csv": frozenset(
        {
            *("charset", "encoding", "sep", "delimiter", "quote", "quoteAll", "escape", "escapeQuotes", "charToEscapeQuoteEscaping"),
            *("comment", "header", "inferSchema", "preferDate", "enforceSchema", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
            *("nullValue", "emptyValue", "nanValue", "positiveInf", "negativeInf", "dateFormat", "timestampFormat", "timestampNTZFormat"),
            *("timeFormat", "enableDateTimeParsingFallback", "maxColumns", "maxCharsPerColumn", "inputBufferSize", "columnPruning"),
            *("unescapedQuoteHandling", "mode", "columnNameOfCorruptRecord", "multiLine", "samplingRatio", "locale", "lineSep", "timeZone"),
            *("extension", "singleVariantColumn", "codec", "compression"),
        }
    ),
    "json": frozenset(
        {
            *("charset", "encoding", "primitivesAsString", "prefersDecimal", "allowComments", "allowUnquotedFieldNames"),
            *("allowSingleQuotes", "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars"),
            *("allowNonNumericNumbers", "mode", "columnNameOfCorruptRecord", "dateFormat", "timestampFormat", "timestampNTZFormat"),
            *("timeFormat", "enableDateTimeParsingFallback", "multiLine", "explodeEmbeddedArray", "lineSep", "samplingRatio", "locale"),
            *("dropFieldIfAllNull", "inferTimestamp", "ignoreNullFields", "pretty", "sortKeys", "writeNonAsciiCharacterAsCodePoint"),
            *("timeZone", "useUnsafeRow", "singleVariantColumn", "compression"),
        }
    ),
    "parquet": frozenset({"mergeSchema", "datetimeRebaseMode", "int96RebaseMode", "compression", "parquet.compression"}),
    "orc": frozenset({"mergeSchema", "compression", "orc.compress"}),
    "text": frozenset({"wholetext", "lineSep", "encoding", "compression"}),
}
"""By format; as Spark's own readers list them."""

OF_FOLDERS: Final = frozenset(
    {
        *("path", "basePath", "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter", "timeZone"),
        *("ignoreCorruptFiles", "ignoreMissingFiles", "latestFirst", "fileNameOnly", "maxFileAge", "cleanSource", "sourceArchiveDir"),
        *("maxFilesPerTrigger", "maxBytesPerTrigger", "maxCachedFiles", "discardCachedInputRatio"),
    }
)
"""Of all formats; source: Spark's guide to generic options of file sources, and that to streaming from files."""


def check_file_options(format: str, names: Iterable[str], place: str) -> None:
    """Check that Spark knows the options of a source of files, be they of another format: jobs may give the same ones to all files.

    Names with a dot are settings of a file system, and are not checked.

    Raises:
        DefinitionError: it does not, and would leave one out.
    """
    known = {name.lower(): name for name in OF_READERS[format] | OF_FOLDERS}
    others = {name.lower() for options in OF_READERS.values() for name in options}
    for name in names:
        if name.lower() in known.keys() | others or "." in name:
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1)
        those = f"it is one of {', '.join(sorted(OF_READERS[format], key=str.lower))}"
        raise DefinitionError(
            f"files(options={{{name!r}: …}}) is no option of Spark's reader of {format}, which would leave it out",
            fix=f"write {known[near[0]]!r}" if near else those,
            place=place,
        )
