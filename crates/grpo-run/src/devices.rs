//! The devices that computed the steps of a run.

use std::fmt;

use crate::events::{Event, EventKind};
use crate::info::RunInfo;

/// A device, as recorded in runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDevice {
    /// E.g. `cuda:0`.
    pub name: String,
    /// Name of the GPU. `None` on the CPU, and in runs created by older versions.
    pub gpu: Option<String>,
}

impl fmt::Display for RecordedDevice {
    /// Writes for example `cpu` or `cuda:0 (NVIDIA H100)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.gpu.as_ref().map_or(Ok(()), |gpu| write!(f, " ({gpu})"))
    }
}

/// The devices that computed a run, which changes its device if it is resumed on another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDevices {
    /// The first step of each, counted from 1, in ascending order. Neighbours differ. Never empty.
    parts: Vec<(u64, RecordedDevice)>,
}

impl RunDevices {
    /// Collects the devices from the records of a run.
    pub fn of(info: &RunInfo, events: &[Event]) -> Self {
        // The name of the CPU's backend in older runs.
        let name = if info.device == "flex" { "cpu" } else { &info.device };
        let start = RecordedDevice { name: name.to_owned(), gpu: info.gpu.clone() };
        let mut last = start.clone();
        let mut parts = vec![(1, start)];
        for event in events {
            match &event.what {
                EventKind::Resumed { device: Some(name), gpu } => {
                    last = RecordedDevice { name: name.clone(), gpu: gpu.clone() };
                }
                EventKind::RolledBack { .. } => {}
                _ => continue,
            }
            // The steps after this one were undone.
            parts.retain(|(first, _)| *first <= event.step);
            if parts.last().is_none_or(|(_, before)| *before != last) {
                parts.push((event.step + 1, last.clone()));
            }
        }
        Self { parts }
    }

    /// Returns the device on which the run started or was last resumed.
    pub fn last(&self) -> &RecordedDevice {
        self.of_step(u64::MAX)
    }

    /// Returns the device that computed a step, counted from 1.
    pub fn of_step(&self, step: u64) -> &RecordedDevice {
        let part = self.parts.iter().rfind(|(first, _)| *first <= step);
        &part.unwrap_or(&self.parts[0]).1
    }
}

impl fmt::Display for RunDevices {
    /// Writes for example `cuda:0 (NVIDIA H100); cpu from step 3 on`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, start) = &self.parts[0];
        write!(f, "{start}")?;
        self.parts[1..]
            .iter()
            .try_for_each(|(first, device)| write!(f, "; {device} from step {first} on"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn info(device: &str, gpu: Option<&str>) -> RunInfo {
        RunInfo {
            command: Vec::new(),
            started: String::new(),
            versions: BTreeMap::new(),
            git_revision: None,
            seed: 0,
            device: device.to_owned(),
            gpu: gpu.map(str::to_owned),
            threads: 1,
            config_sha256: String::new(),
            chained: true,
            data: Vec::new(),
        }
    }

    fn resumed(step: u64, device: &str) -> Event {
        let device = (!device.is_empty()).then(|| device.to_owned());
        Event { step, at: String::new(), what: EventKind::Resumed { device, gpu: None } }
    }

    #[test]
    fn a_step_was_computed_where_the_run_was_resumed_before_it() {
        let events = [resumed(2, "cpu"), resumed(3, "cpu"), resumed(5, "wgpu:0")];
        let devices = RunDevices::of(&info("cuda:0", Some("NVIDIA H100")), &events);
        let names: Vec<&str> = (0..8).map(|step| devices.of_step(step).name.as_str()).collect();
        assert_eq!(names[..4], ["cuda:0", "cuda:0", "cuda:0", "cpu"]);
        assert_eq!(names[4..], ["cpu", "cpu", "wgpu:0", "wgpu:0"]);
        assert_eq!(
            devices.to_string(),
            "cuda:0 (NVIDIA H100); cpu from step 3 on; wgpu:0 from step 6 on"
        );
    }

    #[test]
    fn steps_that_were_undone_are_computed_again() {
        let events = [resumed(5, "wgpu:0"), resumed(2, "cpu"), resumed(7, "cuda:0")];
        let devices = RunDevices::of(&info("cpu", None), &events);
        assert_eq!(devices.to_string(), "cpu; cuda:0 from step 8 on");
        // From the beginning.
        let devices = RunDevices::of(&info("cpu", None), &[resumed(0, "wgpu:0")]);
        assert_eq!(devices.of_step(1).name, "wgpu:0");
    }

    #[test]
    fn steps_after_a_roll_back_are_computed_on_the_last_device() {
        let back = |step| {
            let what = EventKind::RolledBack {
                number: 1,
                from_step: 8,
                learning_rate_factor: 0.5,
                kl_coef: 0.0,
            };
            Event { step, at: String::new(), what }
        };
        let devices = RunDevices::of(&info("cuda:0", None), &[resumed(5, "cpu"), back(2)]);
        assert_eq!(devices.to_string(), "cuda:0; cpu from step 3 on");
        let devices = RunDevices::of(&info("cpu", None), &[back(2)]);
        assert_eq!(devices.to_string(), "cpu");
    }

    #[test]
    fn older_runs_have_one_device() {
        let devices = RunDevices::of(&info("flex", None), &[resumed(2, "")]);
        assert_eq!(devices.to_string(), "cpu");
    }
}
