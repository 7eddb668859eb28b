//! `grpo devices`: the devices that can compute.

use burn::tensor::Device;
use clap::Args;
use grpo_task::device;
use grpo_task::device::{Backend, DeviceName, formats, tensor_core_formats, verify};
use grpo_task::output::{say, say_data, table};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo devices
  grpo train configs/molecules/grpo.toml --device cpu")]
pub(crate) struct DevicesArguments {
    /// One JSON object per line instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// A device, or a backend without devices.
#[derive(Serialize)]
struct Listed {
    /// Name for `--device`.
    device: String,
    works: bool,
    is_default: bool,
    /// Name of the hardware, or why the device does not work.
    description: String,
    /// Number formats.
    numbers: Vec<&'static str>,
    /// Those that tensor cores multiply, with sums in f32.
    tensor_cores: Vec<&'static str>,
}

pub(crate) fn run(arguments: &DevicesArguments) -> anyhow::Result<()> {
    let listed: Vec<Listed> = Backend::ALL.into_iter().flat_map(of_backend).collect();
    if arguments.json {
        for device in listed {
            say_data(format_args!("{}", serde_json::to_string(&device)?));
        }
        return Ok(());
    }
    let row = |device: Listed| {
        let works = match (device.works, device.is_default) {
            (true, true) => "yes, used by default",
            (true, false) => "yes",
            (false, true) => "no, but it is the default",
            (false, false) => "no",
        };
        let mut numbers = device.numbers.join(" ");
        if !device.tensor_cores.is_empty() {
            numbers += &format!(", tensor cores for {}", device.tensor_cores.join(" "));
        }
        [device.device, works.to_owned(), device.description, numbers]
    };
    let header = ["device", "works", "description", "numbers"];
    say(format_args!("{}", table(header, listed.into_iter().map(row), 0..0)));
    Ok(())
}

/// Lists the devices of a backend.
fn of_backend(backend: Backend) -> Vec<Listed> {
    match backend.devices() {
        Ok(devices) => devices
            .into_iter()
            .enumerate()
            .map(|(index, device)| of_device(DeviceName::new(backend, index), &device))
            .collect(),
        Err(why) => vec![Listed {
            device: backend.name().to_owned(),
            works: false,
            is_default: device::default_name().backend == backend,
            description: format!("{why:#}"),
            numbers: Vec::new(),
            tensor_cores: Vec::new(),
        }],
    }
}

fn of_device(name: DeviceName, device: &Device) -> Listed {
    let works = verify(device);
    Listed {
        device: name.to_string(),
        works: works.is_ok(),
        is_default: device::default_name() == name,
        description: match &works {
            Ok(()) => device::hardware(device),
            Err(why) => format!("{why:#}"),
        },
        tensor_cores: if works.is_ok() { tensor_core_formats(device) } else { Vec::new() },
        numbers: works.map(|()| formats(device)).unwrap_or_default(),
    }
}
