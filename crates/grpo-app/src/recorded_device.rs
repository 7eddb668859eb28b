//! The device that computed the steps of a run, and why another one cannot repeat them exactly.

use std::fmt;

use grpo_run::{Event, EventKind, RunInfo, device_and_gpu};

use crate::device::{self, DeviceName};

/// A device, as recorded in runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedDevice {
    /// E.g. `cuda:0`.
    pub(crate) name: String,
    /// Name of the GPU. `None` on the CPU, and in runs created by older versions.
    pub(crate) gpu: Option<String>,
}

impl RecordedDevice {
    /// Returns the device of this process. Its GPU is only known if it works.
    pub(crate) fn of_this_process() -> Self {
        Self { name: device::name().to_string(), gpu: device::gpu().ok().flatten() }
    }

    /// Returns the device on which a run started.
    pub(crate) fn of_start(info: &RunInfo) -> Self {
        // The name of the CPU's backend in older runs.
        let name = if info.device == "flex" { "cpu" } else { &info.device };
        Self { name: name.to_owned(), gpu: info.gpu.clone() }
    }

    /// Returns the device that computed a step of a run, which may have been resumed on another one.
    pub(crate) fn of_step(info: &RunInfo, events: &[Event], step: u64) -> Self {
        let before = events.iter().rev().filter(|event| event.step < step);
        let mut resumed = before.filter_map(|event| match &event.what {
            EventKind::Resumed { device, gpu } => Some((device, gpu)),
            _ => None,
        });
        match resumed.next() {
            Some((Some(name), gpu)) => Self { name: name.clone(), gpu: gpu.clone() },
            _ => Self::of_start(info),
        }
    }

    /// Returns the event that records that a run of this device is resumed on the device `now`.
    pub(crate) fn resumed_on(&self, now: Self) -> EventKind {
        match self.computes_like(&now) {
            true => EventKind::Resumed { device: None, gpu: None },
            false => EventKind::Resumed { device: Some(now.name), gpu: now.gpu },
        }
    }

    /// Explains, after the words "was computed", why results of the device `now` may differ from those of
    /// this one. Returns `None` if they are equal.
    pub(crate) fn difference(&self, now: &Self) -> Option<String> {
        (!self.computes_like(now)).then(|| {
            let remedy = match self.name == now.name {
                true => "a GPU of the same type".to_owned(),
                false => format!("--device {}", self.name),
            };
            format!(
                "on {self}, but this process computes on {now}, so results can differ by rounding; use {remedy} to rule this out"
            )
        })
    }

    /// Returns whether both have the same backend and, as far as known, the same type of GPU.
    fn computes_like(&self, other: &Self) -> bool {
        let [own, others] = [&self.name, &other.name].map(|name| name.parse::<DeviceName>().ok());
        match (&self.gpu, &other.gpu) {
            (Some(gpu), Some(other)) if gpu != other => false,
            (Some(_), Some(_)) => own.map(|of| of.backend) == others.map(|of| of.backend),
            _ => own == others && own.is_some(),
        }
    }
}

impl fmt::Display for RecordedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&device_and_gpu(&self.name, self.gpu.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn device(name: &str, gpu: &str) -> RecordedDevice {
        let gpu = (!gpu.is_empty()).then(|| gpu.to_owned());
        RecordedDevice { name: name.to_owned(), gpu }
    }

    #[test]
    fn devices_that_compute_the_same_are_recognized() {
        for (recorded, now) in [
            (("cpu", ""), ("cpu", "")),
            (("wgpu", ""), ("wgpu:0", "A")),
            (("cuda:1", ""), ("cuda:1", "A")),
            (("cuda:1", "A"), ("cuda:0", "A")),
        ] {
            let [recorded, now] = [recorded, now].map(|(name, gpu)| device(name, gpu));
            assert_eq!(recorded.difference(&now), None, "{recorded} {now}");
            assert_eq!(
                recorded.resumed_on(now),
                EventKind::Resumed { device: None, gpu: None },
                "{recorded}"
            );
        }
    }

    #[test]
    fn other_devices_are_named_with_a_remedy() {
        let same_type = "a GPU of the same type";
        for (recorded, now, remedy) in [
            (("cuda:1", ""), ("cpu", ""), "--device cuda:1"),
            (("cuda:1", ""), ("cuda:0", "A"), "--device cuda:1"),
            (("cpu", ""), ("wgpu:0", "A"), "--device cpu"),
            (("wgpu:0", "A"), ("cuda:0", "A"), "--device wgpu:0"),
            (("cuda:0", "A"), ("cuda:0", "B"), same_type),
        ] {
            let [recorded, now] = [recorded, now].map(|(name, gpu)| device(name, gpu));
            let expected = format!(
                "on {recorded}, but this process computes on {now}, so results can differ by rounding; use {remedy} to rule this out"
            );
            assert_eq!(recorded.difference(&now), Some(expected));
            let event = EventKind::Resumed { device: Some(now.name.clone()), gpu: now.gpu.clone() };
            assert_eq!(recorded.resumed_on(now), event);
        }
        assert_eq!(device("cuda:0", "NVIDIA H100").to_string(), "cuda:0 (NVIDIA H100)");
    }

    #[test]
    fn a_step_was_computed_where_the_run_was_resumed_before_it() {
        let info = RunInfo {
            command: Vec::new(),
            started: String::new(),
            versions: BTreeMap::new(),
            git_revision: None,
            seed: 0,
            device: "cuda:0".to_owned(),
            gpu: Some("A".to_owned()),
            threads: 1,
            config_sha256: String::new(),
            chained: true,
            data: Vec::new(),
        };
        let resumed = |step, device: Option<&str>| {
            let device = device.map(str::to_owned);
            Event { step, at: String::new(), what: EventKind::Resumed { device, gpu: None } }
        };
        // The run was resumed on the CPU after step 2 and on the first device after step 5.
        let events = [resumed(2, Some("cpu")), resumed(5, None)];
        let of = |step| RecordedDevice::of_step(&info, &events, step);
        assert_eq!([of(1), of(2)], [device("cuda:0", "A"), device("cuda:0", "A")]);
        assert_eq!([of(3), of(5)], [device("cpu", ""), device("cpu", "")]);
        assert_eq!(of(6), RecordedDevice::of_start(&info));
        let older = RunInfo { device: "flex".to_owned(), gpu: None, ..info.clone() };
        assert_eq!(RecordedDevice::of_start(&older), device("cpu", ""));
    }
}
