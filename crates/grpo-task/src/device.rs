//! The device that computes: which devices there are, which of them work, and which one was chosen.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, anyhow, bail, ensure};
use burn::tensor::{DType, Device, Tensor};

#[cfg(not(any(feature = "flex", feature = "wgpu", feature = "cuda")))]
compile_error!("choose a backend: --features flex, wgpu or cuda");

/// A backend, i.e. an implementation of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// NVIDIA GPUs with CUDA.
    Cuda,
    /// GPUs with Vulkan.
    Wgpu,
    /// The CPU.
    Cpu,
}

/// A device of a backend.
///
/// Its name is that of the backend, followed by the number of the device, e.g. `cuda:0`. There is
/// only one `cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// Backend of the device.
    pub backend: Backend,
    /// Number as listed by `grpo devices`.
    index: usize,
}

/// The device of this process.
#[derive(Clone, Copy)]
struct Choice {
    device: DeviceName,
    /// Whether it was chosen with `--device`.
    by_option: bool,
}

/// The device of this process, once it cannot change any more.
static CHOICE: OnceLock<Choice> = OnceLock::new();

/// Chooses the device of this process, for `--device`.
///
/// # Errors
/// Returns an error if it is not built in, or if this process already uses another one.
pub fn choose(device: DeviceName) -> anyhow::Result<()> {
    let DeviceName { backend, .. } = device;
    ensure!(backend.is_built_in(), "--device {device}: {}", backend.how_to_build_in());
    let used = CHOICE.get_or_init(|| Choice { device, by_option: true }).device;
    ensure!(
        used == device,
        "this process already uses {used}; use {device} in a process of its own"
    );
    Ok(())
}

/// Computes on a device instead of the default one, unless this process already has a device.
///
/// # Errors
/// Returns an error if it does not work.
pub(crate) fn prefer(device: DeviceName) -> anyhow::Result<()> {
    match CHOICE.get() {
        Some(_) => Ok(()),
        None => opened(Choice { device, by_option: false }).map(drop),
    }
}

/// Returns the device chosen with `--device`, if any.
pub fn chosen() -> Option<DeviceName> {
    CHOICE.get().filter(|choice| choice.by_option).map(|choice| choice.device)
}

/// Returns the name of [`device`], as recorded in runs.
pub fn name() -> DeviceName {
    CHOICE.get().map_or_else(default_name, |choice| choice.device)
}

/// Returns the device that is used if none is chosen: the first one of the first backend that is built
/// in.
pub fn default_name() -> DeviceName {
    let built_in = Backend::ALL.into_iter().find(|backend| backend.is_built_in());
    DeviceName { backend: built_in.expect("a backend is built in"), index: 0 }
}

/// Returns the device that computes: the one chosen with `--device`, or else the one of the run that
/// is resumed or replayed, or else the first one of the first backend that is built in.
///
/// # Errors
/// Returns an error if it does not work. Another device is never used instead.
pub fn device() -> anyhow::Result<Device> {
    let default = || Choice { device: default_name(), by_option: false };
    opened(CHOICE.get().copied().unwrap_or_else(default))
}

/// Returns the device of this process, which is opened as `choice` the first time.
fn opened(choice: Choice) -> anyhow::Result<Device> {
    static OPENED: Mutex<Option<Device>> = Mutex::new(None);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*opened {
        return Ok(device.clone());
    }
    let device = choice.device.open()?;
    CHOICE.get_or_init(|| choice);
    if !grpo_kernels::is_cpu(&device) {
        grpo_runtime::let_threads_sleep();
    }
    Ok(opened.insert(device).clone())
}

/// Returns a warning for several ranks if the device was not chosen although there are several GPUs.
pub fn shared_by_ranks() -> Option<String> {
    let device = name();
    let is_open = chosen().is_none() && device.backend != Backend::Cpu;
    let count = if is_open { device.backend.devices().map_or(0, |found| found.len()) } else { 0 };
    (count > 1).then(|| {
        let backend = device.backend.name();
        format!(
            "each process computes on {device} of its machine, which has {count} GPUs; choose one for each process, with Open MPI: sh -c 'grpo … --device {backend}:$OMPI_COMM_WORLD_LOCAL_RANK' (srun: SLURM_LOCALID)"
        )
    })
}

/// Returns the name of the GPU that computes, or `None` on the CPU and if the driver has none.
///
/// # Errors
/// Returns an error if the device does not work.
pub fn gpu() -> anyhow::Result<Option<String>> {
    match name().backend {
        Backend::Cpu => Ok(None),
        _ => Ok(name_of_gpu(&device()?)),
    }
}

/// Returns what ranks must have in common: `cpu`, or the name of the GPU and its backend.
///
/// # Errors
/// Returns an error if the device does not work.
pub fn kind() -> anyhow::Result<String> {
    let backend = name().backend.name();
    Ok(gpu()?.map_or_else(|| backend.to_owned(), |gpu| format!("{gpu} ({backend})")))
}

impl Backend {
    /// All backends, in order of preference.
    pub const ALL: [Self; 3] = [Self::Cuda, Self::Wgpu, Self::Cpu];

    /// Returns the name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
            Self::Cpu => "cpu",
        }
    }

    pub(crate) fn is_built_in(self) -> bool {
        match self {
            Self::Cuda => cfg!(feature = "cuda"),
            Self::Wgpu => cfg!(feature = "wgpu"),
            Self::Cpu => cfg!(feature = "flex"),
        }
    }

    /// Says that the backend is not built in and how to change that.
    pub(crate) fn how_to_build_in(self) -> String {
        let features = match self {
            Self::Cpu => "without --no-default-features".to_owned(),
            gpu => format!("with `cargo xtask build --features {}`", gpu.name()),
        };
        format!("not built in; build {features}")
    }

    /// Returns the devices of this backend.
    ///
    /// # Errors
    /// Returns an error if there are none, e.g. because a driver is missing.
    pub fn devices(self) -> anyhow::Result<Vec<Device>> {
        ensure!(self.is_built_in(), self.how_to_build_in());
        let found = caught(|| enumerated(self)).with_context(|| self.what_is_missing())?;
        ensure!(!found.is_empty(), self.what_is_missing());
        ensure!(
            self != Self::Cuda || has_cuda_headers(),
            "the headers of CUDA, which kernels include, were not found; install the CUDA toolkit, or set CUDA_PATH to the folder of one"
        );
        Ok(found)
    }

    fn what_is_missing(self) -> &'static str {
        match self {
            Self::Cuda => "no NVIDIA GPU with a CUDA driver was found",
            Self::Wgpu => {
                "no GPU with a Vulkan driver was found (if one is installed, VK_ICD_FILENAMES must be unset or name its file; for a GPU in software, install mesa-vulkan-drivers)"
            }
            Self::Cpu => "the CPU cannot be used",
        }
    }
}

/// Returns whether CubeCL finds the headers of CUDA (`cubecl_cuda::install::cuda_path`). It panics
/// otherwise.
fn has_cuda_headers() -> bool {
    let usual = ["/usr/local/cuda", "/opt/cuda", "/usr/bin/nvcc"];
    let is_installed = || usual.iter().any(|path| std::path::Path::new(path).exists());
    cfg!(windows) || std::env::var("CUDA_PATH").is_ok() || is_installed()
}

fn enumerated(backend: Backend) -> Vec<Device> {
    #[allow(unused_imports, reason = "unused if only one backend is built in")]
    use burn::tensor::DeviceType;
    match backend {
        #[cfg(feature = "cuda")]
        Backend::Cuda => Device::enumerate(DeviceType::Cuda).into_iter().collect(),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => Device::enumerate(DeviceType::Wgpu).into_iter().collect(),
        #[cfg(feature = "flex")]
        Backend::Cpu => vec![Device::flex()],
        #[allow(unreachable_patterns, reason = "unreachable if all backends are built in")]
        _ => Vec::new(),
    }
}

impl DeviceName {
    /// Creates the name of a device.
    pub fn new(backend: Backend, index: usize) -> Self {
        Self { backend, index }
    }

    /// Opens the device and verifies that it computes.
    fn open(self) -> anyhow::Result<Device> {
        let open = || {
            let devices = self.backend.devices()?;
            let count = devices.len();
            let found = devices.into_iter().nth(self.index);
            let device = found.with_context(|| match count {
                1 => "there is only one device of this kind".to_owned(),
                count => format!("there are only {count} devices of this kind"),
            })?;
            verify(&device)?;
            Ok::<_, anyhow::Error>(device)
        };
        let or_cpu = match self.backend {
            Backend::Cpu => "",
            _ => {
                "; `grpo devices` lists the devices that work, and `--device cpu` computes on the CPU"
            }
        };
        open().map_err(|error| anyhow!("device {self} cannot be used: {error:#}{or_cpu}"))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.backend {
            Backend::Cpu => f.write_str("cpu"),
            gpu => write!(f, "{}:{}", gpu.name(), self.index),
        }
    }
}

impl FromStr for DeviceName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (backend, index) = match text.split_once(':') {
            None => (text, Some(0)),
            Some((backend, index)) => (backend, index.parse().ok()),
        };
        let backend = Backend::ALL.into_iter().find(|known| known.name() == backend);
        match (backend, index) {
            (Some(Backend::Cpu), _) if text != "cpu" => bail!("there is only one cpu"),
            (Some(backend), Some(index)) => Ok(Self { backend, index }),
            _ => bail!("expected cpu, or cuda or wgpu with an optional number, e.g. cuda:0"),
        }
    }
}

/// Verifies that a device computes, with a small product.
///
/// # Errors
/// Returns an error if it fails or if the result is wrong.
pub fn verify(device: &Device) -> anyhow::Result<()> {
    let product = caught(|| {
        let ones = Tensor::<2>::ones([64, 64], device);
        ones.clone().matmul(ones).sum().into_scalar::<f32>()
    })?;
    ensure!(product == 262_144.0, "the device computes wrong results: {product} instead of 262144");
    Ok(())
}

/// Returns the name that the driver has for a GPU.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn name_of_gpu(device: &Device) -> Option<String> {
    Some(caught(|| device.identity()).ok()??.name)
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn name_of_gpu(_: &Device) -> Option<String> {
    None
}

/// Returns the name of the hardware.
pub fn hardware(device: &Device) -> String {
    if let Some(name) = name_of_gpu(device) {
        return name;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match cores {
        1 => "this computer, 1 core".to_owned(),
        cores => format!("this computer, {cores} cores"),
    }
}

/// Returns the number formats that a device supports.
pub fn formats(device: &Device) -> Vec<&'static str> {
    named(|dtype| grpo_kernels::computes_in(device, dtype))
}

/// Returns the number formats that a device multiplies on tensor cores.
pub fn tensor_core_formats(device: &Device) -> Vec<&'static str> {
    named(|dtype| grpo_kernels::has_tensor_cores(device, dtype))
}

/// Returns the names of the number formats that fit.
fn named(fits: impl Fn(DType) -> bool) -> Vec<&'static str> {
    let known =
        [("f64", DType::F64), ("f32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)];
    known.into_iter().filter(|(_, dtype)| fits(*dtype)).map(|(name, _)| name).collect()
}

/// Runs code of a backend, which panics if a driver is missing or fails.
///
/// # Errors
/// Returns the first line of the panic message. The others are for developers of the backend.
fn caught<T>(code: impl FnOnce() -> T) -> anyhow::Result<T> {
    grpo_data::caught_message(code).map_err(|message| {
        anyhow!("the driver failed: {}", message.lines().next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["cpu", "cuda:0", "cuda:3", "wgpu:1"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        assert_eq!("wgpu".parse::<DeviceName>().unwrap().to_string(), "wgpu:0");
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "tpu", "cuda:", "cuda:x", "cuda:-1", "wgpu:0:0"] {
            let error = name.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.starts_with("expected cpu, or cuda or wgpu"), "{name}: {error}");
        }
        assert_eq!("cpu:1".parse::<DeviceName>().unwrap_err().to_string(), "there is only one cpu");
    }

    #[test]
    fn panics_become_errors() {
        let error = caught(|| panic!("no libcuda.so\nnote: {}", 1)).map(|()| 0).unwrap_err();
        assert_eq!(error.to_string(), "the driver failed: no libcuda.so");
        assert_eq!(caught(|| 1).unwrap(), 1);
    }

    #[test]
    fn the_cpu_computes_in_f32() {
        let device = Backend::Cpu.devices().unwrap().remove(0);
        verify(&device).unwrap();
        assert!(formats(&device).contains(&"f32"));
    }
}
