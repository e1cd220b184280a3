//! The document in force, and what was called. One for each loaded copy of the library.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Configuration, Device};

/// What a copy of the library knows.
pub(crate) struct State {
    pub(crate) configuration: Option<Configuration>,
    /// Calls of each function since the library was loaded.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Calls of each function since the document came into force.
    turns: BTreeMap<String, usize>,
    /// Queries of each device's memory since then, by handle.
    queries: BTreeMap<usize, u64>,
}

/// A device's place in the document, counted from 1, and its MIG instance's above [`MIG_SHIFT`].
pub(crate) type Handle = usize;
pub(crate) const MIG_SHIFT: u32 = 16;

impl State {
    /// Puts a document in force.
    pub(crate) fn configure(&mut self, configuration: Configuration) {
        self.configuration = Some(configuration);
        self.turns.clear();
        self.queries.clear();
    }

    /// The device or MIG instance behind a handle, as it is now.
    pub(crate) fn device(&self, handle: Handle) -> Option<Device> {
        let (place, mig_place) = (handle & ((1 << MIG_SHIFT) - 1), handle >> MIG_SHIFT);
        let device = self.configuration.as_ref()?.devices.get(place.checked_sub(1)?)?;
        let device = match mig_place.checked_sub(1) {
            None => device,
            Some(instance) => device.mig_devices.get(instance)?,
        };
        // What follows a query, such as that of the processes, belongs to the same moment.
        let before = self.queries.get(&handle).map_or(0, |queries| queries - 1);
        Some(device.at(before))
    }

    /// Counts a query of a device's memory, before it is answered.
    pub(crate) fn memory_queried(&mut self, handle: Handle) {
        *self.queries.entry(handle).or_default() += 1;
    }

    /// Every device and MIG instance with its handle, devices in their order and instances behind their own.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (Handle, &Device)> {
        let devices = self.configuration.iter().flat_map(|configuration| &configuration.devices).enumerate();
        devices.flat_map(|(place, device)| {
            let instances = device.mig_devices.iter().enumerate();
            let instances = instances.map(move |(instance, mig)| ((instance + 1) << MIG_SHIFT | (place + 1), mig));
            std::iter::once((place + 1, device)).chain(instances)
        })
    }

    /// Counts a call of `function`; the answer the document has for just this call, or for every one.
    pub(crate) fn called(&mut self, function: &str) -> Option<u32> {
        *self.calls.entry(function.to_owned()).or_default() += 1;
        let turns = self.turns.entry(function.to_owned()).or_default();
        let turn = *turns;
        *turns += 1;
        let configuration = self.configuration.as_ref()?;
        match configuration.first_answers.get(function).and_then(|codes| codes.get(turn)) {
            Some(first) => *first,
            None => configuration.errors.get(function).copied(),
        }
    }
}

static STATE: Mutex<State> =
    Mutex::new(State { configuration: None, calls: BTreeMap::new(), turns: BTreeMap::new(), queries: BTreeMap::new() });

pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The document in the file that this variable names.
pub(crate) const FILE_VARIABLE: &str = "MEMTRACK_MOCK_NVML";

/// Reads the document from the file, if one is named; what is wrong with it goes to standard error.
pub(crate) fn from_file() -> Option<Configuration> {
    let path = std::env::var_os(FILE_VARIABLE)?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{FILE_VARIABLE}={}: {error}", path.display());
            return None;
        }
    };
    parsed(&text)
}

/// Reads the document from text; what is wrong with it goes to standard error.
pub(crate) fn parsed(text: &str) -> Option<Configuration> {
    serde_json::from_str(text).inspect_err(|error| eprintln!("mock NVML configuration: {error}")).ok()
}
