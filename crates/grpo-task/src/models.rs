//! Loads and writes model and adapter folders.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{ChatOptions, DataError, regular_file};
use grpo_model::{
    Adapted, Adapter, AdapterConfig, AdapterFolder, Families, LoraConfig, ModelFolder,
    ModelFormats, ModelSpec, Policy, StoredAs, Transformer, WeightPrecision, is_gguf_file,
    largest_weight, write_adapter,
};
use grpo_report::resume_command;
use grpo_run::{
    EventKind, Existing, MODEL_CARD, RunError, RunFolder, atomic_write, last_state, move_aside,
    sha256_of_manifest, was_stopped_by_guard, write_folder_atomically, write_manifest,
};

use crate::config;
use crate::example_hint::example_hint;
use crate::output::{command_line, remove_at_exit, say_aside};
use crate::recorded_folders::{is_exported_folder, refuse_inside};
use crate::used_inputs::keep_used;
use crate::written_by::result_of;
use crate::wrong_folder::refuse_wrong_folder;

/// A loaded model and its codec.
pub struct Loaded {
    /// Model configuration and codec.
    pub spec: ModelSpec,
    /// The weights.
    pub policy: Policy,
    /// Adapter configuration, if the policy has an adapter.
    pub adapter: Option<AdapterConfig>,
    /// All files that were read, with their roles.
    pub files: Vec<(&'static str, PathBuf)>,
}

/// Selects which weights are trained.
#[derive(Clone, Copy)]
pub enum Trained<'a> {
    /// All weights of the model.
    Whole,
    /// An existing adapter in this folder.
    Adapter(&'a Path),
    /// An existing adapter in this folder. The caller checks its base model.
    AdapterOfAnyBase(&'a Path),
    /// A new adapter, initialized with this seed.
    NewAdapter(&'a LoraConfig, u64),
}

impl<'a> Trained<'a> {
    /// Converts the `--adapter` option.
    pub fn argument(adapter: Option<&'a Path>) -> Self {
        adapter.map_or(Self::Whole, Self::Adapter)
    }

    /// Converts the configuration keys `adapter` and `lora`.
    pub fn of(
        adapter: Option<&'a Path>,
        lora: Option<&'a LoraConfig>,
        base_precision: WeightPrecision,
        seed: u64,
    ) -> anyhow::Result<Self> {
        match (adapter, lora) {
            (Some(_), Some(_)) => anyhow::bail!(
                "the configuration has both `adapter` and [lora]; keep `adapter` to train an existing adapter, or [lora] to create a new one"
            ),
            (Some(adapter), None) => Ok(Self::Adapter(adapter)),
            (None, Some(lora)) => Ok(Self::NewAdapter(lora, seed)),
            (None, None) => {
                anyhow::ensure!(
                    base_precision == WeightPrecision::F32,
                    "base_precision requires an adapter; add [lora] or `adapter`, or remove base_precision"
                );
                Ok(Self::Whole)
            }
        }
    }
}

/// Like [`read`], but only for models that continue text.
///
/// # Errors
/// Returns an error if [`read`] fails or if the model does not continue text.
pub fn load(
    model: &Path,
    formats: &ModelFormats,
    trained: Trained<'_>,
    precision: WeightPrecision,
    device: &Device,
) -> anyhow::Result<Loaded> {
    check_causal(model, &formats.families)?;
    let loaded = read(model, formats, trained, precision, device)?;
    if let Trained::Adapter(adapter) = trained {
        warn_if_unfinished(adapter);
        note_without_effect(adapter, &loaded.policy);
    }
    if let Some(note) = untied_note(model, &loaded.spec) {
        say_aside(format_args!("note: {note}"));
    }
    warn_about(model, loaded.policy.parts().0);
    Ok(loaded)
}

/// Says that an adapter has no effect, if so.
pub fn note_without_effect(adapter: &Path, policy: &Policy) {
    if let Policy::Adapted(adapted) = policy
        && !adapted.base().is_changed_by(adapted.adapter())
    {
        say_aside(format_args!(
            "note: adapter {} changes nothing: its update of every weight is 0",
            adapter.display()
        ));
    }
}

/// Warns about suspicious weights of the model in `folder`, and if it belongs to an unfinished run.
pub fn warn_about(folder: &Path, model: &Transformer) {
    if let Some(warning) = suspicious_weights(folder, model) {
        say_aside(format_args!("warning: {warning}"));
    }
    warn_if_unfinished(folder);
}

/// Warns if a model or adapter belongs to a run that has not reached its end.
pub fn warn_if_unfinished(folder: &Path) {
    if let Some(warning) = unfinished_run(folder) {
        say_aside(format_args!("warning: {warning}"));
    }
}

/// Returns a note if the model has an output layer of its own although its `config.json` ties it to
/// the token embedding.
pub(crate) fn untied_note(folder: &Path, spec: &ModelSpec) -> Option<String> {
    let families = Families::from(spec.config.family());
    let written = families.read(&folder.join("config.json")).ok()?;
    (written.description().head != spec.config.description().head).then(|| {
        format!(
            "{} has tie_word_embeddings = true, but its lm_head.weight differs from the token embedding; lm_head.weight is used, as in transformers 5",
            folder.display()
        )
    })
}

/// Larger weights suggest a damaged file. The weights of trained models stay below 100.
const LARGEST_WEIGHT: f32 = 1e4;

/// Returns a warning if the weights are not those of a trained model.
fn suspicious_weights(folder: &Path, model: &Transformer) -> Option<String> {
    let largest = largest_weight(model);
    let weights = match largest {
        0.0 => Some("are all 0, so every next token is equally likely".to_owned()),
        _ if largest > LARGEST_WEIGHT => {
            Some(format!("reach {largest:e}, but those of trained models stay below 100"))
        }
        _ => None,
    };
    weights.map(|weights| {
        format!("the weights of {} {weights}; is the file damaged?", folder.display())
    })
}

/// Returns a warning if the model belongs to a run that has not reached its end. In that case, the folder
/// contains the last or the best model so far.
pub fn unfinished_run(folder: &Path) -> Option<String> {
    let place = folder.canonicalize().ok()?;
    let run = RunFolder::open(place.parent()?).ok()?;
    let events = run.read_events().ok()?;
    let is_guard = was_stopped_by_guard(&events);
    let state = last_state(events);
    let (is_final, resume) = ("and is not its final result", "resume the run to finish it");
    let sentence = match state {
        Some(EventKind::Finished { .. }) => return None,
        _ if run.is_locked() => {
            format!(
                "belongs to a run that is still training {is_final}; wait until it has finished"
            )
        }
        // Resuming such a run does not continue it.
        Some(EventKind::Stopped { .. }) if is_guard => format!(
            "belongs to a run that did not reach its end: a guard stopped the run; `{}` shows why",
            command_line(["grpo", "report", &run_around(folder).display().to_string()])
        ),
        Some(EventKind::Stopped { .. }) => {
            format!("belongs to a run that stopped before its end {is_final}; {resume}")
        }
        _ => format!("belongs to an unfinished run {is_final}; {resume}"),
    };
    Some(format!("{} {sentence}", folder.display()))
}

/// Returns the run folder that contains a model, as the user would write it.
fn run_around(model: &Path) -> PathBuf {
    match model.parent() {
        Some(run) if run != Path::new("") => run.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Checks that the model folder contains a model that continues text. A missing folder or `config.json`
/// is not an error here, because loading the model reports it.
///
/// # Errors
/// Returns an error if the models of its family do something else.
pub fn check_causal(model: &Path, families: &Families) -> anyhow::Result<()> {
    let read = families.read(&model.join("config.json"));
    match read.ok().and_then(|config| config.family().not_causal) {
        Some(what) => anyhow::bail!("{} is {what}", model.display()),
        None => Ok(()),
    }
}

/// Loads a model folder, or a GGUF file, with an existing or a new adapter. Folders with a manifest, such as
/// checkpoints, are verified first.
///
/// # Errors
/// Returns an error if a folder is missing, invalid or incompatible.
pub fn read(
    model: &Path,
    formats: &ModelFormats,
    trained: Trained<'_>,
    precision: WeightPrecision,
    device: &Device,
) -> anyhow::Result<Loaded> {
    let mut files = match is_gguf_file(model) {
        true => gguf_files(model),
        false => check_folder(model, "model", "config.json and model.safetensors")?,
    };
    // A frozen base model needs no autodiff.
    let base_device = match trained {
        Trained::Whole => device.clone(),
        Trained::Adapter(_) | Trained::AdapterOfAnyBase(_) | Trained::NewAdapter(..) => {
            device.clone().inner()
        }
    };
    let ModelFolder { spec, model: base, digest } =
        ModelFolder::load_in(model, formats, precision, &base_device)?;
    check_codec(&spec, model)?;
    let (policy, adapter) = match trained {
        Trained::Whole => (Policy::Whole(base), None),
        Trained::Adapter(path) | Trained::AdapterOfAnyBase(path) => {
            files.extend(check_folder(path, "adapter", ADAPTER_FILES)?);
            let AdapterFolder { adapter, config } = AdapterFolder::load(path, &base, device)?;
            let config = match trained {
                Trained::AdapterOfAnyBase(_) => config,
                _ => config.on_base(&digest, path, model)?,
            };
            (Policy::Adapted(Adapted::new(&base, adapter)), Some(config))
        }
        Trained::NewAdapter(lora, seed) => {
            // PEFT may run in a different working directory, so the path has to be absolute.
            let place = std::path::absolute(model).unwrap_or_else(|_| model.to_owned());
            let config = AdapterConfig::new(lora, &base, &place.display().to_string());
            let config = config.on_base(&digest, model, model)?;
            let adapter = Adapter::random(lora, &base, seed, device)?;
            (Policy::Adapted(Adapted::new(&base, adapter)), Some(config))
        }
    };
    Ok(Loaded { spec, policy, adapter, files })
}

/// Returns the files that a run from a GGUF file records. The manifest of an exported folder is one of them,
/// because a folder that is replaced is kept if a run has recorded its manifest.
fn gguf_files(file: &Path) -> Vec<(&'static str, PathBuf)> {
    let is_exported = file.parent().is_some_and(is_exported_folder);
    let manifest = is_exported.then(|| file.with_file_name("manifest.json"));
    std::iter::once(file.to_owned()).chain(manifest).map(|path| ("model", path)).collect()
}

/// Names of the files in an adapter folder.
pub const ADAPTER_FILES: &str = "adapter_config.json and adapter_model.safetensors";

/// Rejects a model without the vocabulary of its family.
pub fn check_codec(spec: &ModelSpec, folder: &Path) -> Result<(), DataError> {
    match spec.config.family().vocabulary {
        Some(vocabulary) if !spec.codec.is_own() => {
            Err(DataError::MissingFile { path: folder.join(vocabulary.name) })
        }
        _ => Ok(()),
    }
}

/// Verifies the manifest of an existing folder and returns the paths of its files.
pub fn check_folder(
    path: &Path,
    role: &'static str,
    holds: &str,
) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let article = if role == "adapter" { "an" } else { "a" };
    let fault = regular_file::folder_fault(path);
    anyhow::ensure!(
        fault.is_none(),
        "{role} folder {} {}; {article} {role} folder contains {holds}{}",
        path.display(),
        fault.unwrap_or_default(),
        match (unfinished_hint(path), role) {
            (Some(hint), _) => hint,
            (None, "adapter") =>
                "; `grpo pretrain` and `grpo train` write one to the run folder if the configuration has a [lora] section".to_owned(),
            (None, _) => example_hint(path).to_owned(),
        }
    );
    refuse_wrong_folder(path, role)?;
    if path.join("manifest.json").exists() {
        grpo_run::verify(path)?;
    }
    let first = holds.split([',', ' ']).next().unwrap_or(holds);
    anyhow::ensure!(
        path.join(first).exists(),
        "{} has no {first}, so it is not {article} {role} folder; {article} {role} folder contains {holds}",
        path.display()
    );
    let mut files = Vec::new();
    for entry in
        std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?
    {
        let path = entry.with_context(|| format!("cannot read {}", path.display()))?.path();
        // Users edit model cards, which no model depends on.
        if path.is_file() && !path.ends_with(MODEL_CARD) {
            files.push((role, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Returns how to get a missing model or adapter of a run that exists.
fn unfinished_hint(path: &Path) -> Option<String> {
    let run = RunFolder::open(path.parent()?).ok()?;
    let keys = config::load::<toml::Table>(&run.config_path(), &[]).ok()?.value;
    // Another name is a wrong path.
    if path.file_name()? != result_of(&keys) {
        return None;
    }
    let resume = resume_command(&keys, run.path());
    Some(format!("; `grpo {resume}` finishes the run and writes it"))
}

impl Loaded {
    /// Returns the chat options, or an error if the template does not support `thinking`.
    pub fn chat_options(
        &self,
        thinking: Option<bool>,
        model: &Path,
    ) -> anyhow::Result<ChatOptions> {
        anyhow::ensure!(
            thinking.is_none() || self.spec.codec.has_chat_template(),
            "--thinking requires a chat template, but {} has none; remove it",
            model.display()
        );
        if let (Some(thinking), false) = (thinking, self.spec.codec.has_thinking_switch()) {
            let effect = no_thinking_switch(&format!("--thinking {thinking}"), &model.display());
            // Without the switch, there is no thinking to disable.
            anyhow::ensure!(!thinking, "{effect}; remove it");
            say_aside(format_args!("note: {effect}"));
        }
        Ok(ChatOptions::for_answer(thinking))
    }

    /// Returns `model` or `adapter`, which is also the name of the weights' folder in a run.
    pub fn kind(&self) -> &'static str {
        if self.adapter.is_some() { "adapter" } else { "model" }
    }
}

/// Returns the message for a setting of a chat template that has no such switch.
pub(crate) fn no_thinking_switch(setting: &str, model: &dyn fmt::Display) -> String {
    format!(
        "{setting} has no effect, because the chat template of {model} does not use `enable_thinking`"
    )
}

/// Checks the path of a new model folder before anything is computed.
///
/// # Errors
/// Returns an error if the path exists, or if it is inside a model folder or run.
pub fn check_new_model(target: &Path) -> anyhow::Result<()> {
    refuse_inside(target, "-o")?;
    anyhow::ensure!(
        target.symlink_metadata().is_err(),
        RunError::Exists { path: target.to_owned() }
    );
    Ok(())
}

/// Writes a new model folder, including its manifest.
pub fn write_new_model(
    target: &Path,
    spec: &ModelSpec,
    model: &Transformer,
    stored_as: StoredAs,
) -> anyhow::Result<()> {
    refuse_inside(target, "-o")?;
    write_folder(target, Existing::Refuse, None, |folder| Ok(spec.write(folder, model, stored_as)?))
}

/// Writes a folder that `fill` fills, with its manifest and, if given, a model card. An existing one is kept
/// under another name if a run was started from it.
pub fn write_folder(
    target: &Path,
    existing: Existing,
    card: Option<&str>,
    fill: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    write_folder_atomically(target, existing, |folder| {
        remove_at_exit(folder.to_owned());
        fill(folder)?;
        write_manifest(folder)?;
        if let Some(card) = card {
            // Not in the manifest, so that it can be edited.
            atomic_write(&folder.join(MODEL_CARD), card.as_bytes())?;
        }
        match existing {
            Existing::Replace => Ok(keep_used(target, folder, || move_aside(target).map(Some))?),
            Existing::Refuse => anyhow::Ok(()),
        }
    })
}

/// Writes policies to folders.
#[derive(Clone)]
pub struct Writer {
    /// Model configuration and codec.
    pub spec: ModelSpec,
    /// Adapter configuration, if an adapter is trained.
    pub adapter: Option<AdapterConfig>,
}

impl Writer {
    /// Writes the files of a model or adapter into the existing `folder`.
    pub fn fill(&self, folder: &Path, policy: &Policy) -> anyhow::Result<()> {
        match (policy, &self.adapter) {
            (Policy::Adapted(adapted), Some(config)) => {
                write_adapter(adapted.adapter(), config, folder, adapted.base())?;
            }
            (policy, _) => self.spec.write(folder, policy.parts().0, StoredAs::F32)?,
        }
        Ok(())
    }

    /// Writes the subfolder `name` of a run with a manifest and replaces an existing one. `announce`
    /// receives the SHA-256 of the manifest before the folder gets its name.
    pub fn save(
        &self,
        run: &RunFolder,
        name: &str,
        policy: &Policy,
        announce: impl FnOnce(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        run.write_subfolder(name, |folder| {
            self.fill(folder, policy)?;
            write_manifest(folder)?;
            announce(sha256_of_manifest(folder)?)
        })
    }
}
