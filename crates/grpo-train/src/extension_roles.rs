//! What only one extension of a run can do.

use grpo_data::ConfigFault;

/// What only one extension of a run can do, because nothing defines which of two comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionRole {
    /// Sets bonuses ([`crate::StepExtension::sets_bonus`]).
    Bonus,
    /// Keeps scores ([`crate::StepExtension::score_keeper`]).
    Scores,
    /// Adds an auxiliary loss ([`crate::StepExtension::auxiliary_loss`]).
    Loss,
}

/// Checks that the extensions of a run, in their order, can be told apart by name and that no two of them have the
/// same role.
///
/// # Errors
/// Returns an error that names two extensions.
pub fn refuse_conflicts(extensions: &[(&str, Vec<ExtensionRole>)]) -> Result<(), ConfigFault> {
    for (place, (second, roles)) in extensions.iter().enumerate() {
        let conflict = |(first, others): &&(&str, Vec<ExtensionRole>)| {
            first == second || others.iter().any(|role| roles.contains(role))
        };
        if let Some((first, _)) = extensions[..place].iter().find(conflict) {
            let message = format!("{first} and {second} cannot be combined; remove one of them");
            return Err(ConfigFault::from_sentence(*first, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_have_their_own_names_and_roles() {
        use ExtensionRole::{Bonus, Loss, Scores};
        let check = |extensions: &[(&str, &[ExtensionRole])]| {
            let extensions: Vec<(&str, Vec<ExtensionRole>)> =
                extensions.iter().map(|(name, roles)| (*name, roles.to_vec())).collect();
            refuse_conflicts(&extensions).map_err(|fault| fault.to_string())
        };
        check(&[("a", &[Bonus, Loss]), ("b", &[Scores]), ("c", &[])]).unwrap();
        let refused = |first, second| {
            Err(format!("{first} and {second} cannot be combined; remove one of them"))
        };
        assert_eq!(check(&[("a", &[]), ("b", &[]), ("a", &[])]), refused("a", "a"));
        assert_eq!(check(&[("a", &[]), ("b", &[Loss]), ("c", &[Bonus, Loss])]), refused("b", "c"));
    }
}
