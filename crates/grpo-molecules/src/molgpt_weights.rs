//! Converts the tensors of published MolGPT checkpoints.
//!
//! Two layouts are supported: that of MolGPT's own class, whose tensor names our models share, and
//! that of PyTorch's `TransformerEncoder`, which computes queries, keys and values with one matrix.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use grpo_model::{ConvertedWeights, ModelError, Stored, TorchFile};

/// The tensors of a checkpoint under MolGPT's names, and the sizes inferred from their shapes.
#[derive(Debug)]
pub(crate) struct MolGptWeights {
    file: TorchFile,
    pieces: BTreeMap<String, Piece>,
    pub(crate) sizes: MolGptSizes,
    /// Differences between the checkpoint and the converted model, one sentence each.
    pub(crate) notes: Vec<String>,
}

/// The sizes of a checkpoint. The number of heads does not follow from the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MolGptSizes {
    pub(crate) vocab_size: usize,
    pub(crate) block_size: usize,
    pub(crate) n_layer: usize,
    pub(crate) n_embd: usize,
    /// Number of properties. 0 if the model is not conditioned on properties.
    pub(crate) num_props: usize,
    /// Number of scaffold tokens. 0 if the model is not conditioned on scaffolds.
    pub(crate) scaffold_maxlen: usize,
    /// Number of layers of the LSTM that reads scaffolds, or 0.
    pub(crate) lstm_layers: usize,
}

/// Where the values of a tensor come from.
#[derive(Clone, Debug)]
enum Piece {
    /// A tensor of the file.
    Whole(String),
    /// A range of rows from a tensor in the file.
    Rows(String, Range<usize>),
    /// A constant.
    Filled(Vec<usize>, f32),
}

impl MolGptWeights {
    /// Recognises the layout of a checkpoint. `block_size` is the context length for checkpoints
    /// without position embeddings.
    ///
    /// # Errors
    /// Returns an error if the layout is unknown, or if a tensor that determines a size is missing
    /// or has an unexpected shape.
    pub(crate) fn recognise(
        file: TorchFile,
        block_size: Option<usize>,
    ) -> Result<Self, ModelError> {
        let encoder =
            |name: &str| name.strip_suffix("layers.0.self_attn.in_proj_weight").map(str::to_owned);
        let prefix = file.shapes().find_map(|(name, _)| encoder(name));
        match prefix {
            Some(prefix) => Self::of_encoder(file, &prefix, block_size),
            None => Self::of_molgpt(file, block_size),
        }
    }

    fn of_molgpt(file: TorchFile, block_size: Option<usize>) -> Result<Self, ModelError> {
        let [vocab_size, n_embd] = shape(&file, "tok_emb.weight")?;
        let [_, positions, _] = shape(&file, "pos_emb")?;
        if let Some(given) = block_size.filter(|given| *given != positions) {
            let problem = format!(" has {positions} positions, not {given}; remove --block-size");
            return Err(ModelError::file(file.path(), problem));
        }
        let n_layer = layers(&file, "blocks.");
        let num_props = match file.shape("prop_nn.weight") {
            Some(_) => shape::<2>(&file, "prop_nn.weight")?[1],
            None => 0,
        };
        let lstm = |name: &str| name.starts_with("lstm.weight_ih_l");
        let lstm_layers = file.shapes().filter(|(name, _)| lstm(name)).count();
        // The masks cover the conditions too, which have no positions.
        let masked = match file.shape("blocks.0.attn.mask") {
            Some(_) => shape::<4>(&file, "blocks.0.attn.mask")?[3],
            None => positions,
        };
        let conditions = masked.saturating_sub(positions);
        let scaffold_maxlen = conditions.saturating_sub(usize::from(num_props > 0));
        let sizes = MolGptSizes {
            vocab_size,
            block_size: positions,
            n_layer,
            n_embd,
            num_props,
            scaffold_maxlen,
            lstm_layers,
        };
        // The published code stores causal masks along with the weights.
        let names = file.shapes().map(|(name, _)| name).filter(|n| !n.ends_with(".attn.mask"));
        let pieces = names.map(|name| whole(name, name)).collect();
        Ok(Self { file, pieces, sizes, notes: Vec::new() })
    }

    fn of_encoder(
        mut file: TorchFile,
        prefix: &str,
        block_size: Option<usize>,
    ) -> Result<Self, ModelError> {
        let [vocab_size, n_embd] = shape(&file, "embedding.weight")?;
        let Some(block_size) = block_size else {
            let problem = " has no position embeddings, so its context length is unknown; add --block-size N (MOSES models use 54)";
            return Err(ModelError::file(file.path(), problem));
        };
        let n_layer = layers(&file, &format!("{prefix}layers."));
        let mut notes = vec![
            "the weights do not show whether the encoder normalises before attention and uses GELU, as MolGPT does; if it does not, the converted model is only a starting point for training".to_owned(),
        ];
        let mut pieces = BTreeMap::from([
            whole("tok_emb.weight", "embedding.weight"),
            whole("head.weight", "fc.weight"),
            ("pos_emb".to_owned(), Piece::Filled(vec![1, block_size, n_embd], 0.0)),
            ("type_emb.weight".to_owned(), Piece::Filled(vec![2, n_embd], 0.0)),
        ]);
        for layer in 0..n_layer {
            pieces.extend(encoder_layer(prefix, layer, n_embd));
        }
        if file.shape(&format!("{prefix}norm.weight")).is_some() {
            pieces.extend(parameters("ln_f", &format!("{prefix}norm")));
        } else {
            pieces.insert("ln_f.weight".to_owned(), Piece::Filled(vec![n_embd], 1.0));
            pieces.insert("ln_f.bias".to_owned(), Piece::Filled(vec![n_embd], 0.0));
            notes.push("the encoder has no final layer norm; a neutral one was added".to_owned());
        }
        if file.shape("fc.bias").is_some()
            && file.read("fc.bias")?.values.iter().any(|value| *value != 0.0)
        {
            notes.push(
                "the bias of the output layer was dropped, because MolGPT has none".to_owned(),
            );
        }
        let sizes = MolGptSizes { vocab_size, block_size, n_layer, n_embd, ..Default::default() };
        let weights = Self { file, pieces, sizes, notes };
        weights.check_all_used()?;
        Ok(weights)
    }

    /// Returns an error if a tensor of an encoder has no counterpart.
    fn check_all_used(&self) -> Result<(), ModelError> {
        let used = |name: &str| {
            let reads = |piece: &Piece| match piece {
                Piece::Whole(source) | Piece::Rows(source, _) => source == name,
                Piece::Filled(..) => false,
            };
            name == "fc.bias" || self.pieces.values().any(reads)
        };
        match self.file.shapes().find(|(name, _)| !used(name)) {
            Some((name, _)) => Err(ModelError::unknown_tensor(self.file.path(), name)),
            None => Ok(()),
        }
    }
}

impl ConvertedWeights for MolGptWeights {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn names(&self) -> Vec<String> {
        self.pieces.keys().cloned().collect()
    }

    /// Also fails if a tensor has fewer rows than expected.
    fn read(&mut self, name: &str) -> Result<Stored, ModelError> {
        match self.pieces.get(name) {
            None => Err(ModelError::missing_tensor(self.file.path(), name)),
            Some(Piece::Whole(source)) => self.file.read(source),
            Some(Piece::Rows(source, rows)) => {
                let mut stored = self.file.read(source)?;
                let path = self.file.path();
                let expected = 3 * rows.len();
                let Some((&found, inner)) =
                    stored.shape.split_first().filter(|(found, _)| **found == expected)
                else {
                    let problem = format!(
                        "tensor '{source}' has shape {:?}, but queries, keys and values require {expected} rows",
                        stored.shape
                    );
                    return Err(ModelError::in_file(path, problem));
                };
                let width = stored.values.len() / found.max(1);
                stored.values = stored.values[rows.start * width..rows.end * width].to_vec();
                stored.shape = [&[rows.len()], inner].concat();
                Ok(stored)
            }
            Some(Piece::Filled(shape, value)) => {
                let values = vec![*value; shape.iter().product()];
                Ok(Stored { shape: shape.clone(), values })
            }
        }
    }
}

/// Returns the tensors of a layer of PyTorch's encoder.
fn encoder_layer(prefix: &str, layer: usize, width: usize) -> Vec<(String, Piece)> {
    let (ours, theirs) = (format!("blocks.{layer}."), format!("{prefix}layers.{layer}."));
    let mut pieces = Vec::new();
    for (third, part) in ["query", "key", "value"].into_iter().enumerate() {
        for kind in ["weight", "bias"] {
            let rows = third * width..(third + 1) * width;
            let source = format!("{theirs}self_attn.in_proj_{kind}");
            pieces.push((format!("{ours}attn.{part}.{kind}"), Piece::Rows(source, rows)));
        }
    }
    for (our, their) in [
        ("attn.proj", "self_attn.out_proj"),
        ("mlp.0", "linear1"),
        ("mlp.2", "linear2"),
        ("ln1", "norm1"),
        ("ln2", "norm2"),
    ] {
        pieces.extend(parameters(&format!("{ours}{our}"), &format!("{theirs}{their}")));
    }
    pieces
}

fn whole(ours: &str, theirs: &str) -> (String, Piece) {
    (ours.to_owned(), Piece::Whole(theirs.to_owned()))
}

/// Returns the weight and the bias of a module.
fn parameters(ours: &str, theirs: &str) -> [(String, Piece); 2] {
    ["weight", "bias"].map(|kind| whole(&format!("{ours}.{kind}"), &format!("{theirs}.{kind}")))
}

/// Returns the number of layers whose tensors have this prefix.
fn layers(file: &TorchFile, prefix: &str) -> usize {
    let number = |name: &str| name.strip_prefix(prefix)?.split('.').next()?.parse::<u16>().ok();
    let last = file.shapes().filter_map(|(name, _)| number(name)).max();
    last.map_or(0, |last| usize::from(last) + 1)
}

/// Returns the shape of a tensor with `D` axes.
fn shape<const D: usize>(file: &TorchFile, name: &str) -> Result<[usize; D], ModelError> {
    let Some(shape) = file.shape(name) else {
        let problem = format!(
            " is missing tensor '{name}'; expected a state dict of MolGPT, or of a TransformerEncoder with `embedding` and `fc`"
        );
        return Err(ModelError::file(file.path(), problem));
    };
    shape.try_into().map_err(|_| {
        let problem = format!("tensor '{name}' has shape {shape:?}; expected {D} axes");
        ModelError::in_file(file.path(), problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognised(name: &str, block_size: Option<usize>) -> Result<MolGptWeights, String> {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-model/tests/fixtures/torch");
        let file = TorchFile::open(&folder.join(name)).unwrap();
        MolGptWeights::recognise(file, block_size)
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
    }

    #[test]
    fn sizes_follow_from_the_tensors() {
        let plain = MolGptSizes {
            vocab_size: 26,
            block_size: 24,
            n_layer: 2,
            n_embd: 16,
            ..Default::default()
        };
        let check = |name: &str, block_size, expected| {
            assert_eq!(recognised(name, block_size).unwrap().sizes, expected, "{name}");
        };
        check("molgpt.pt", None, plain);
        check("molgpt.pt", Some(24), plain);
        check("legacy.pt", None, plain);
        check("property.pt", None, MolGptSizes { num_props: 2, ..plain });
        check("scaffold.pt", None, MolGptSizes { num_props: 2, scaffold_maxlen: 8, ..plain });
        check("lstm.pt", None, MolGptSizes { scaffold_maxlen: 8, lstm_layers: 2, ..plain });
        check("encoder.pt", Some(24), plain);
    }

    #[test]
    fn queries_keys_and_values_are_thirds() {
        let mut encoder = recognised("encoder.pt", Some(10)).unwrap();
        let joint = encoder.file.read("transformer.layers.1.self_attn.in_proj_weight").unwrap();
        assert_eq!(joint.shape, [48, 16]);
        let mut split = Vec::new();
        for part in ["query", "key", "value"] {
            let third = encoder.read(&format!("blocks.1.attn.{part}.weight")).unwrap();
            assert_eq!(third.shape, [16, 16]);
            split.extend(third.values);
        }
        assert_eq!(split, joint.values);
        assert_eq!(encoder.read("blocks.0.attn.key.bias").unwrap().shape, [16]);
        assert_eq!(encoder.read("pos_emb").unwrap().values, [0.0; 160]);
    }

    /// A converted encoder has the same tensors as a MolGPT.
    #[test]
    fn both_layouts_have_the_same_tensors() {
        let listed = |mut weights: MolGptWeights| {
            let names = weights.names();
            let shape = |name: String| (weights.read(&name).unwrap().shape, name);
            names.into_iter().map(shape).collect::<Vec<_>>()
        };
        let native = listed(recognised("molgpt.pt", None).unwrap());
        assert_eq!(listed(recognised("encoder.pt", Some(24)).unwrap()), native);
    }

    #[test]
    fn unknown_layouts_are_refused() {
        let refused = |name, block_size| recognised(name, block_size).unwrap_err();
        assert_eq!(
            refused("tensors.pt", None),
            "tensors.pt is missing tensor 'tok_emb.weight'; expected a state dict of MolGPT, or of a TransformerEncoder with `embedding` and `fc`"
        );
        assert_eq!(
            refused("encoder.pt", None),
            "encoder.pt has no position embeddings, so its context length is unknown; add --block-size N (MOSES models use 54)"
        );
        assert_eq!(
            refused("molgpt.pt", Some(54)),
            "molgpt.pt has 24 positions, not 54; remove --block-size"
        );
    }
}
