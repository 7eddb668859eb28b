//! Configuration files with layers (`extends`, `--set`), strict keys, and errors with file and
//! line.

mod layers;
mod published_names;
mod records;
mod removed_keys;
mod syntax;

pub use layers::nearest;
pub use layers::{Command, Loaded, Origin, is_set, load, load_for, of_sets};
pub use layers::{of_text, of_text_for};
pub use records::REVISION;
pub use records::{now, resolved, run_info};
pub(crate) use removed_keys::drop_removed_of_run;
pub use removed_keys::{drop_removed, refuse_removed};
