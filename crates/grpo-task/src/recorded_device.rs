//! The device of this process, compared with the one that computed a step of a run.

use anyhow::anyhow;
use grpo_run::RecordedDevice;

use crate::device;
use crate::device::DeviceName;
use crate::output::say_aside;

/// Returns the device of this process. Its GPU is only known if it works.
pub fn of_this_process() -> RecordedDevice {
    RecordedDevice { name: device::name().to_string(), gpu: device::gpu().ok().flatten() }
}

/// Computes on the device that computed `what`, e.g. "step 3", unless another one was chosen with
/// `--device`. Warns if results may then differ, and returns the reason, see [`difference`].
///
/// # Errors
/// Returns an error if the device does not work.
pub fn compute_on(recorded: &RecordedDevice, what: &str) -> anyhow::Result<Option<String>> {
    if device::chosen().is_none() {
        let opened = recorded.name.parse().and_then(device::prefer);
        opened.map_err(|error| {
            anyhow!("{what} was computed on {recorded}, which is used unless --device names another device (of the same type, for equal results): {error:#}")
        })?;
    }
    let why = difference(recorded);
    if let Some(why) = &why {
        say_aside(format_args!("device       {what} was computed {why}"));
    }
    Ok(why)
}

/// Explains, after the words "was computed", why results of this process may differ from those of the
/// device `recorded`. Returns `None` if they are equal.
pub fn difference(recorded: &RecordedDevice) -> Option<String> {
    explained(recorded, &of_this_process())
}

fn explained(recorded: &RecordedDevice, now: &RecordedDevice) -> Option<String> {
    (!compute_alike(recorded, now)).then(|| {
        let remedy = match recorded.name == now.name {
            true => "a GPU of the same type".to_owned(),
            false => format!("--device {}", recorded.name),
        };
        format!(
            "on {recorded}, but this process computes on {now}, so results can differ by rounding; use {remedy} to rule this out"
        )
    })
}

/// Returns whether both have the same backend and, as far as known, the same type of GPU.
pub fn compute_alike(a: &RecordedDevice, b: &RecordedDevice) -> bool {
    if a == b {
        return true;
    }
    let names = [a, b].map(|device| device.name.parse::<DeviceName>().ok());
    match (&a.gpu, &b.gpu) {
        (Some(a), Some(b)) if a != b => false,
        (Some(_), Some(_)) => {
            let [a, b] = names.map(|name| name.map(|name| name.backend));
            a == b
        }
        _ => names[0] == names[1] && names[0].is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device((name, gpu): (&str, &str)) -> RecordedDevice {
        let gpu = (!gpu.is_empty()).then(|| gpu.to_owned());
        RecordedDevice { name: name.to_owned(), gpu }
    }

    #[test]
    fn devices_that_compute_alike_are_recognized() {
        for (recorded, now) in [
            (("cpu", ""), ("cpu", "")),
            // Of a later version.
            (("npu", ""), ("npu", "")),
            (("wgpu", ""), ("wgpu:0", "A")),
            (("cuda:1", ""), ("cuda:1", "A")),
            (("cuda:1", "A"), ("cuda:0", "A")),
        ] {
            assert_eq!(explained(&device(recorded), &device(now)), None, "{recorded:?} {now:?}");
        }
    }

    #[test]
    fn other_devices_are_named_with_a_remedy() {
        for (recorded, now, remedy) in [
            (("cuda:1", ""), ("cpu", ""), "--device cuda:1"),
            (("cuda:1", ""), ("cuda:0", "A"), "--device cuda:1"),
            (("cpu", ""), ("wgpu:0", "A"), "--device cpu"),
            (("wgpu:0", "A"), ("cuda:0", "A"), "--device wgpu:0"),
            (("cuda:0", "A"), ("cuda:0", "B"), "a GPU of the same type"),
        ] {
            let [recorded, now] = [recorded, now].map(device);
            let expected = format!(
                "on {recorded}, but this process computes on {now}, so results can differ by rounding; use {remedy} to rule this out"
            );
            assert_eq!(explained(&recorded, &now), Some(expected));
        }
    }
}
