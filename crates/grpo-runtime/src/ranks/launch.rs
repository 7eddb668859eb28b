//! Detects from the environment whether a launcher has started several ranks.

use std::env;

/// The rank and the number of ranks that a launcher has set in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of this rank, counted from 0.
    pub rank: usize,
    /// Number of ranks.
    pub count: usize,
}

/// Variables of Open MPI's `mpirun`, of MPICH and PMI-2, and of Slurm's `srun`, with or without an MPI
/// plugin.
const VARIABLES: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
];

/// Returns how a launcher such as `mpirun` or `srun` has started this process, or `None` if it was
/// started on its own.
pub fn launch() -> Option<Launch> {
    of_variables(|name| env::var(name).ok())
}

fn of_variables(value: impl Fn(&str) -> Option<String>) -> Option<Launch> {
    let number = |name: &str| value(name)?.parse().ok();
    VARIABLES
        .iter()
        .find_map(|[rank, count]| Some(Launch { rank: number(rank)?, count: number(count)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_recognised_by_their_variables() {
        let of = |set: &[(&str, &str)]| {
            of_variables(|name| {
                let found = set.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let expected = Some(Launch { rank: 1, count: 4 });
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")]), expected);
        assert_eq!(of(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")]), expected);
        assert_eq!(of(&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")]), expected);
        // A shell in a Slurm allocation is not a rank.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(of(&[("PMI_RANK", "x"), ("PMI_SIZE", "4")]), None);
    }
}
