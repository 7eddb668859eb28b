//! Models in GGUF files, which are read as if they were folders.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use grpo_data::{ChatTemplate, OwnFolder, regular_file};
use grpo_gguf::{GgufError, GgufModel, is_gguf};
use tempfile::TempDir;

use crate::stored_values::Stored;
use crate::{ConvertedWeights, ModelError};

/// Returns whether `path` is a GGUF file, whatever its name: the blobs of Ollama have no extension.
pub fn is_gguf_file(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = |mut file: File| file.read_exact(&mut first).is_ok();
    path.is_file() && regular_file::open(path).is_ok_and(read) && is_gguf(&first)
}

/// Returns the chat template of a model folder or GGUF file, if it has one.
///
/// # Errors
/// Returns an error if a file is missing or invalid.
pub fn chat_template(model: &Path) -> Result<Option<ChatTemplate>, ModelError> {
    if is_gguf_file(model) {
        let (_guard, unpacked) = GgufFile::open(model)?.unpacked()?;
        return Ok(ChatTemplate::from_folder(&unpacked)?);
    }
    Ok(ChatTemplate::from_folder(model)?)
}

/// Returns the number of parameters of the model in a GGUF file, without reading its weights.
///
/// # Errors
/// Returns an error if the file is damaged or not supported.
pub fn gguf_parameters(path: &Path) -> Result<usize, ModelError> {
    let GgufFile { model, .. } = GgufFile::open(path)?;
    let values = |name: &str| model.shape(name).map_or(0, |shape| shape.iter().product::<usize>());
    Ok(model.names().map(values).sum())
}

/// An open GGUF file.
#[derive(Debug)]
pub(crate) struct GgufFile {
    path: PathBuf,
    model: GgufModel<File>,
}

impl GgufFile {
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let read_error = |source| ModelError::Read { path: path.to_owned(), source };
        let file = regular_file::open(path).map_err(read_error)?;
        let model = GgufModel::open(file).map_err(|error| failure(path, error))?;
        Ok(Self { path: path.to_owned(), model })
    }

    /// Returns the name of the model's family.
    pub(crate) fn family_name(&self) -> Option<&str> {
        self.model.config()["model_type"].as_str()
    }

    /// Writes the files that a folder of this model has, except the weights, to a temporary folder, which is
    /// named like the file, so that messages contain the name. Returns the folder with its guard.
    pub(crate) fn unpacked(&self) -> Result<(TempDir, PathBuf), ModelError> {
        let files = self.model.files().map_err(|error| failure(&self.path, error))?;
        let write_error = |error: std::io::Error| ModelError::write(&std::env::temp_dir(), &error);
        let guard = tempfile::tempdir().map_err(write_error)?;
        let name = Path::new(self.path.file_name().unwrap_or_default());
        let write = |folder: &OwnFolder| {
            folder.create_folder(name)?;
            files.iter().try_for_each(|(file, content)| {
                folder.create_file(name.join(file))?.write_all(content.as_bytes())
            })
        };
        OwnFolder::open(guard.path()).and_then(|folder| write(&folder)).map_err(write_error)?;
        let folder = guard.path().join(name);
        Ok((guard, folder))
    }
}

impl ConvertedWeights for GgufFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> Vec<String> {
        self.model.names().map(str::to_owned).collect()
    }

    fn read(&mut self, name: &str) -> Result<Stored, ModelError> {
        let (shape, values) = self.model.read(name).map_err(|error| failure(&self.path, error))?;
        Ok(Stored { shape, values })
    }
}

fn failure(path: &Path, error: GgufError) -> ModelError {
    match error {
        GgufError::Io(source) => ModelError::Read { path: path.to_owned(), source },
        other => ModelError::in_file(path, other),
    }
}
