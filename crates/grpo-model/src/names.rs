//! What a family calls the parameters on disk, and how it lays them out.

/// The tensor names of a family. Ours are paths of modules (`blocks.3.attention.output.weight`).
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// In front of the names of all modules but the head. Checkpoints of the bare trunk leave it out.
    pub prefix: &'static str,
    /// In front of a block's number, behind `prefix`.
    pub blocks: &'static str,
    /// Modules outside the blocks: ours, theirs.
    pub outside: &'static [(&'static str, &'static str)],
    /// Modules of a block: ours, theirs.
    pub inside: &'static [(&'static str, &'static str)],
    /// Linear layers of the blocks are stored `[in, out]`, as GPT-2's `Conv1D` has them.
    pub conv1d: bool,
    /// Whether a tensor without a place may be passed over: it holds nothing that was learned, or nothing
    /// that we compute.
    pub ignored: fn(&str) -> bool,
}

impl Names {
    /// The stored name of the module at our path, e.g. `model.layers.3.self_attn.o_proj`.
    ///
    /// # Panics
    /// Where the family has no such module.
    pub(crate) fn module(&self, path: &str) -> String {
        let found = |table: &[(&str, &'static str)], ours: &str| {
            let row = table.iter().find(|(name, _)| *name == ours);
            row.unwrap_or_else(|| panic!("the family has no name for the module {path}")).1
        };
        match path.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
            Some((number, rest)) => {
                format!("{}{}{number}.{}", self.prefix, self.blocks, found(self.inside, rest))
            }
            None if path == HEAD => found(self.outside, path).to_owned(),
            None => format!("{}{}", self.prefix, found(self.outside, path)),
        }
    }

    /// The stored name of the parameter at our path.
    pub(crate) fn parameter(&self, path: &str) -> String {
        let (module, parameter) = path.rsplit_once('.').expect("a parameter is in a module");
        let stored = self.module(module);
        match stored.strip_suffix(BARE) {
            Some(bare) => bare.to_owned(),
            None => format!("{stored}.{parameter}"),
        }
    }

    /// Whether the parameter is stored with an axis of length 1 in front, as MolGPT's positions are.
    pub(crate) fn is_led(&self, path: &str) -> bool {
        let (module, _) = path.rsplit_once('.').expect("a parameter is in a module");
        self.module(module).ends_with(BARE)
    }

    /// Whether a matrix of a linear layer is stored `[out, in]`, and not as we hold it.
    pub(crate) fn is_swapped(&self, path: &str) -> bool {
        !(self.conv1d && path.starts_with("blocks."))
    }
}

/// Path of the head.
pub(crate) const HEAD: &str = "head";
/// Path of the head that says which tokens are wrong.
pub(crate) const CRITIC: &str = "critic";
/// Path of the head that scores a sequence.
pub(crate) const SCORE_HEAD: &str = "score_head";
/// At the end of a name: it is the tensor's, and not its module's.
pub(crate) const BARE: &str = "!";
