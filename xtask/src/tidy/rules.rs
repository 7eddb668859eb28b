//! The rules, each in its file.

mod architecture_document;
mod backend_cfgs;
mod bundled_data;
mod configurations;
mod dependencies;
mod errors_by_type;
mod file_sizes;
mod inheritance;
mod lengths;
mod links;
mod printing;
mod unfinished;
mod versions;

use super::tree::{Tree, Violation};

/// What a rule is.
pub(super) type Rule = fn(&Tree) -> Vec<Violation>;

/// All of them.
pub(super) const ALL: &[Rule] = &[
    dependencies::follow_the_crate_table,
    architecture_document::agrees_with_the_crate_table,
    backend_cfgs::stand_in_few_files,
    printing::is_for_the_command_line,
    errors_by_type::in_libraries,
    lengths::fit_the_head,
    unfinished::nothing_is_left,
    inheritance::from_the_workspace,
    versions::stand_in_the_root,
    bundled_data::is_described,
    file_sizes::are_small,
    links::lead_somewhere,
    configurations::are_toml,
];
