//! Tensor names and layouts of a family on disk.

/// Tensor names of a family. Our names are module paths (`blocks.3.attention.output.weight`).
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Prefix of all modules but the head. Checkpoints of the bare trunk lack it.
    pub prefix: &'static str,
    /// Prefix of a block's number, after `prefix`.
    pub blocks: &'static str,
    /// Modules outside of blocks: our name, stored name.
    pub outside: &'static [(&'static str, &'static str)],
    /// Modules of a block: our name, stored name.
    pub inside: &'static [(&'static str, &'static str)],
    /// Whether linear layers of blocks are stored `[in, out]`, as in GPT-2's `Conv1D`.
    pub conv1d: bool,
    /// Whether an unused tensor may be ignored, because it was not learned or belongs to another
    /// task.
    pub ignored: fn(&str) -> bool,
}

impl Names {
    /// Returns the stored name of the module at our path, such as
    /// `model.layers.3.self_attn.o_proj`.
    ///
    /// # Panics
    /// Panics if the family has no such module.
    pub(crate) fn module(&self, path: &str) -> String {
        let found = |table: &[(&str, &'static str)], ours: &str| {
            let row = table.iter().find(|(name, _)| *name == ours);
            row.unwrap_or_else(|| panic!("the model family has no name for module {path}")).1
        };
        match path.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
            Some((number, rest)) => {
                format!("{}{}{number}.{}", self.prefix, self.blocks, found(self.inside, rest))
            }
            None if path == HEAD => found(self.outside, path).to_owned(),
            None => format!("{}{}", self.prefix, found(self.outside, path)),
        }
    }

    /// Returns the stored name of the parameter at our path.
    pub(crate) fn parameter(&self, path: &str) -> String {
        let (module, parameter) =
            path.rsplit_once('.').expect("a parameter path contains its module");
        let stored = self.module(module);
        match stored.strip_suffix(BARE) {
            Some(bare) => bare.to_owned(),
            None => format!("{stored}.{parameter}"),
        }
    }

    /// Returns whether the parameter is stored with a leading axis of length 1, as MolGPT's
    /// positions are.
    pub(crate) fn is_led(&self, path: &str) -> bool {
        let (module, _) = path.rsplit_once('.').expect("a parameter path contains its module");
        self.module(module).ends_with(BARE)
    }

    /// Returns whether a linear layer's matrix is stored `[out, in]`.
    pub(crate) fn is_swapped(&self, path: &str) -> bool {
        !(self.conv1d && path.starts_with("blocks."))
    }
}

/// Path of the head.
pub(crate) const HEAD: &str = "head";
/// Path of the head that predicts wrong tokens.
pub(crate) const CRITIC: &str = "critic";
/// Path of the head that scores a sequence.
pub(crate) const SCORE_HEAD: &str = "score_head";
/// Suffix of a name that is the tensor's own rather than its module's.
pub(crate) const BARE: &str = "!";
