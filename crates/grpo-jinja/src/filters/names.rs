//! Names of filters.

/// Filters of Jinja that are refused.
pub(super) const UNSUPPORTED: [&str; 6] =
    ["pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"];

const NAMES: [&str; 48] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
];

/// Whether Jinja has a filter of this name.
pub(crate) fn is_filter(name: &str) -> bool {
    NAMES.contains(&name) || UNSUPPORTED.contains(&name)
}
