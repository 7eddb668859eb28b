//! Tensor names and layouts used in checkpoints of a model family.

/// Maps module paths of this crate, e.g. `blocks.3.attention.output.weight`, to the tensor names in
/// checkpoints of a model family.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Prefix of all modules except the head. Checkpoints of headless models omit it.
    pub prefix: &'static str,
    /// Text between `prefix` and a block index.
    pub blocks: &'static str,
    /// Modules outside the blocks, as pairs of module path and stored name.
    pub outside: &'static [(&'static str, &'static str)],
    /// Modules within a block, as pairs of module path and stored name.
    pub inside: &'static [(&'static str, &'static str)],
    /// Whether linear layers in blocks are stored as `[in, out]`, like GPT-2's `Conv1D`.
    pub conv1d: bool,
    /// Returns whether an unused tensor can be ignored, e.g. because it isn't learned or belongs to
    /// another task.
    pub ignored: fn(&str) -> bool,
}

impl Names {
    /// Returns the stored name of a module, e.g. `model.layers.3.self_attn.o_proj`.
    ///
    /// # Panics
    /// Panics if the family does not have this module.
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

    /// Returns whether the family has a name for the output layer.
    pub(crate) fn has_head(&self) -> bool {
        self.outside.iter().any(|(name, _)| *name == HEAD)
    }

    /// Returns the stored name of a parameter.
    pub(crate) fn parameter(&self, path: &str) -> String {
        let (module, parameter) =
            path.rsplit_once('.').expect("a parameter path contains its module");
        if let Some(lstm) = module.strip_prefix(LSTM) {
            return of_lstm(lstm, parameter);
        }
        let stored = self.module(module);
        match stored.strip_suffix(BARE) {
            Some(bare) => bare.to_owned(),
            None => format!("{stored}.{parameter}"),
        }
    }

    /// Returns whether the parameter is stored with a leading axis of length 1, as the position embeddings
    /// of some models are.
    pub(crate) fn is_led(&self, path: &str) -> bool {
        let (module, _) = path.rsplit_once('.').expect("a parameter path contains its module");
        !module.starts_with(LSTM) && self.module(module).ends_with(BARE)
    }

    /// Returns whether the matrix of a linear layer is stored as `[out, in]`.
    pub(crate) fn is_swapped(&self, path: &str) -> bool {
        !(self.conv1d && path.starts_with("blocks."))
    }
}

/// Returns PyTorch's name for a parameter of an LSTM layer. `module` is the index of the layer and
/// what the product reads, e.g. `0.input`.
fn of_lstm(module: &str, parameter: &str) -> String {
    let (layer, read) = module.split_once('.').expect("an LSTM layer has two products");
    let read = if read == "input" { "ih" } else { "hh" };
    format!("lstm.{parameter}_{read}_l{layer}")
}

/// Module path of the layers of an LSTM.
const LSTM: &str = "prefix.lstm.";
/// Module path of the output layer.
pub(crate) const HEAD: &str = "head";
/// Path of the weight of the output layer.
pub(crate) const HEAD_WEIGHT: &str = "head.weight";
/// Module path of the token embedding.
pub(crate) const TOKENS: &str = "token_embedding";
/// Module path of the critic, which predicts wrong tokens.
pub(crate) const CRITIC: &str = "critic";
/// Module path of the sequence score head.
pub(crate) const SCORE_HEAD: &str = "score_head";
/// Suffix that marks a stored name as the full tensor name. Nothing is appended to it.
pub(crate) const BARE: &str = "!";
