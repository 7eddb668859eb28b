//! The device of this process, compared with the one that computed a step of a run.

use grpo_run::RecordedDevice;

use crate::device::{self, DeviceName};

/// Returns the device of this process. Its GPU is only known if it works.
pub(crate) fn of_this_process() -> RecordedDevice {
    RecordedDevice { name: device::name().to_string(), gpu: device::gpu().ok().flatten() }
}

/// Explains, after the words "was computed", why results of this process may differ from those of the
/// device `recorded`. Returns `None` if they are equal.
pub(crate) fn difference(recorded: &RecordedDevice) -> Option<String> {
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
pub(crate) fn compute_alike(a: &RecordedDevice, b: &RecordedDevice) -> bool {
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
