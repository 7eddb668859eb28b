//! All tidy rules.

mod backend_cfgs;
mod bundled_data;
mod crate_graph;
mod decisions;
mod included_files;
mod links;
mod manifests;
mod module_circles;
mod purposes;
mod sizes;
mod tagged_enums;

use super::tree::{Tree, Violation};

/// A function that returns the violations of a rule.
pub(super) type Rule = fn(&Tree) -> Vec<Violation>;

/// All rules, in the order in which they are checked.
pub(super) const ALL: &[Rule] = &[
    crate_graph::follows_the_document,
    module_circles::do_not_exist,
    sizes::are_limited,
    backend_cfgs::stand_in_few_files,
    manifests::inherit_from_the_workspace,
    bundled_data::is_described,
    included_files::are_in_the_package,
    links::lead_somewhere,
    decisions::are_listed,
    purposes::have_own_numbers,
    tagged_enums::have_no_unit_variants,
];
