//! Settings texts read as PyTorch 2.11 reads them, leniency included.
//!
//! PyTorch has two parsers that go over the same text one after the other: one for what all accelerators know, one for CUDA.
//! Each skips the values of the other's keys, and whatever stands where a separator should.

use super::super::rounding::{INTERVAL_COUNT, RoundupDivisions};
use super::tokens::Tokens;
use super::torch_error::{TorchConfigError, TorchParser};
use super::{Backend, Config, MAX_REGISTER_THREADS};
use crate::units::MIB;

/// PyTorch lowers sizes to this many MiB, which is the most whose bytes fit 64 bits.
const MOST_MB: u64 = u64::MAX / MIB;
const LEAST_LARGE_SEGMENT_MB: u64 = 10;

const LARGE_SEGMENT: &str = "large_segment_size_mb";
const BACKEND: &str = "backend";
/// The keys of the parser for all accelerators.
const ACCELERATOR_KEYS: [&str; 7] = [
    LARGE_SEGMENT,
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
    "pinned_use_background_threads",
];
/// The keys of the parser for CUDA.
const CUDA_KEYS: [&str; 9] = [
    BACKEND,
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "graph_capture_record_stream_reuse",
    "per_process_memory_fraction",
];

fn is_known(key: &str) -> bool {
    ACCELERATOR_KEYS.contains(&key) || CUDA_KEYS.contains(&key)
}

impl Config {
    /// Reads a text as PyTorch 2.11 reads `PYTORCH_CUDA_ALLOC_CONF` at its start.
    ///
    /// PyTorch's rules are lenient: any word passes for a separator, white space is dropped also inside words, `30abc` is 30
    /// and `-1` is 2^64 - 1, the last of equal keys wins, `roundup_power2_divisions:1` rounds nothing. memtrack's own keys
    /// (`policy`, `torch_exact`, `compact_slack_percent`) are unknown here. For a text that is meant for memtrack, [`str::parse`] finds mistakes.
    ///
    /// ```
    /// use memtrack::Config;
    /// let config = Config::from_torch("max_split_size_mb,30abc,")?;
    /// assert_eq!(config.max_split_size_bytes, Some(30 << 20));
    /// let error = Config::from_torch("max_split:30").unwrap_err();
    /// assert_eq!(error.to_string(), "Unrecognized key 'max_split' in CUDA allocator config.");
    /// # Ok::<(), memtrack::TorchConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TorchConfigError`] where PyTorch raises.
    pub fn from_torch(text: &str) -> Result<Self, TorchConfigError> {
        let mut config = Self::default();
        let tokens = Tokens::new(text);
        config.backend = backend_at_load(&tokens);
        // In this order at the start, and in the other one later: an unknown key is CUDA's to complain of.
        let ignored = config.apply_cuda(&tokens)?;
        config.apply_accelerator(text, &tokens)?;
        if config.backend == Backend::CudaMallocAsync
            && let Some(key) = ignored
        {
            tracing::warn!(target: "memtrack", "backend:cudaMallocAsync makes no use of {key} and its like");
        }
        Ok(config)
    }

    /// Reads a text over these settings as PyTorch 2.11 does at run time (`_set_allocator_settings`).
    ///
    /// `max_split_size_mb`, `max_non_split_rounding_mb`, `garbage_collection_threshold` and `roundup_power2_divisions` return
    /// to their defaults where the text does not name them; the others keep their values. The backend cannot be changed. What
    /// an allocator reads only when it is made (`per_process_memory_fraction`, `pinned_reserve_segment_size_mb`) is stored and
    /// has no effect on one that exists.
    ///
    /// # Errors
    ///
    /// [`TorchConfigError`] where PyTorch raises. As in PyTorch, what was read before the mistake stays in force, and
    /// [`last_settings`](Self::last_settings) is this text.
    pub fn apply_torch(&mut self, text: &str) -> Result<(), TorchConfigError> {
        let tokens = Tokens::new(text);
        self.apply_accelerator(text, &tokens)?;
        self.apply_cuda(&tokens)?;
        Ok(())
    }

    /// The parser for all accelerators. Like all that runs at run time it logs nothing: an allocator's lock is held.
    fn apply_accelerator(&mut self, text: &str, tokens: &Tokens) -> Result<(), TorchConfigError> {
        self.origin.lenient = true;
        self.max_split_size_bytes = None;
        self.roundup_power2_divisions = RoundupDivisions::default();
        self.garbage_collection_threshold = None;
        text.clone_into(&mut self.origin.text);
        // The large segment size first, since others are compared with it. Any word of that name counts, also where a value
        // stands.
        let mut index = 0;
        while index < tokens.len() {
            if tokens.get(index)? == LARGE_SEGMENT {
                index = tokens.value_of(index)?;
                let given_mb = tokens.whole(index)?;
                if given_mb <= LEAST_LARGE_SEGMENT_MB {
                    return Err(TorchConfigError::LargeSegmentTooSmall { given_mb });
                }
                self.large_segment_size_bytes = given_mb.min(MOST_MB) * MIB;
            }
            index += 1;
        }
        self.max_non_split_rounding_bytes = self.large_segment_size_bytes;
        for_each_key(tokens, |key, at| self.apply_accelerator_key(tokens, key, at))
    }

    /// One key of the parser for all accelerators; the index of its value's last word.
    fn apply_accelerator_key(&mut self, tokens: &Tokens, key: &str, at: usize) -> Result<usize, TorchConfigError> {
        let value = || tokens.value_of(at);
        let end = match key {
            "max_split_size_mb" => {
                let end = value()?;
                self.max_split_size_bytes = Some(self.size(tokens, "max_split_size_mb", end)?);
                end
            }
            "max_non_split_rounding_mb" => {
                let end = value()?;
                self.max_non_split_rounding_bytes = self.size(tokens, "max_non_split_rounding_mb", end)?;
                end
            }
            "garbage_collection_threshold" => {
                let end = value()?;
                let threshold = tokens.number(end)?;
                if !(threshold > 0.0 && threshold < 1.0) {
                    return Err(TorchConfigError::InvalidThreshold);
                }
                self.garbage_collection_threshold = Some(threshold);
                end
            }
            "roundup_power2_divisions" => self.apply_divisions(tokens, value()?)?,
            "expandable_segments" => {
                let end = value()?;
                self.expandable_segments = tokens.flag(end)?;
                end
            }
            "pinned_use_background_threads" => {
                let end = value()?;
                self.pinned_use_background_threads = tokens.flag(end)?;
                end
            }
            _ if is_known(key) => tokens.skip(at)?,
            _ => {
                let parser = TorchParser::Accelerator;
                return Err(TorchConfigError::UnrecognizedKey { key: key.to_owned(), parser });
            }
        };
        Ok(end)
    }

    fn size(&self, tokens: &Tokens, key: &'static str, index: usize) -> Result<u64, TorchConfigError> {
        let given_mb = tokens.whole(index)?;
        let least_mb = self.large_segment_size_bytes / MIB;
        if given_mb < least_mb {
            return Err(TorchConfigError::TooSmall { key, given_mb, least_mb });
        }
        Ok(given_mb.min(MOST_MB) * MIB)
    }

    /// A number for all sizes, or a list; what was read of a list before a mistake stays.
    fn apply_divisions(&mut self, tokens: &Tokens, start: usize) -> Result<usize, TorchConfigError> {
        if tokens.get(start)? != "[" {
            let given = tokens.whole(start)?;
            self.roundup_power2_divisions =
                RoundupDivisions::uniform(given).filter(|_| given != 0).ok_or(TorchConfigError::Divisions { given })?;
            return Ok(start);
        }
        let mut last_index = 0;
        let mut is_first = true;
        let mut at = start + 1;
        while at < tokens.len() && tokens.get(at)? != "]" {
            let value = tokens.value_of(at)?;
            let given = tokens.whole(value)?;
            if given != 0 && !given.is_power_of_two() {
                return Err(TorchConfigError::ListedDivisions { given });
            }
            if tokens.get(at)? == ">" {
                // From the entry after the last one named: the first entry stays as it is when nothing was.
                self.roundup_power2_divisions.fill(last_index + 1..INTERVAL_COUNT, given);
            } else {
                let boundary = tokens.whole(at)?;
                if !boundary.is_power_of_two() {
                    return Err(TorchConfigError::Interval { given: boundary });
                }
                last_index = (boundary.ilog2() as usize).min(INTERVAL_COUNT - 1);
                let from = if is_first { 0 } else { last_index };
                is_first = false;
                self.roundup_power2_divisions.fill(from..last_index + 1, given);
            }
            at = value;
            if tokens.get(at + 1)? != "]" {
                at += 1;
            }
            at += 1;
        }
        if at < tokens.len() { Ok(at) } else { Err(TorchConfigError::UnclosedList) }
    }

    /// The parser for CUDA; a key that only the native backend makes use of, if there was one.
    fn apply_cuda(&mut self, tokens: &Tokens) -> Result<Option<&'static str>, TorchConfigError> {
        self.origin.lenient = true;
        let mut native_only = None;
        for_each_key(tokens, |key, at| {
            let known = CUDA_KEYS.into_iter().find(|known| *known == key);
            let Some(known) = known else {
                if ACCELERATOR_KEYS.contains(&key) {
                    return tokens.skip(at);
                }
                return Err(TorchConfigError::UnrecognizedKey { key: key.to_owned(), parser: TorchParser::Cuda });
            };
            let value = tokens.value_of(at)?;
            self.apply_cuda_key(tokens, known, value)?;
            if !matches!(known, BACKEND | "per_process_memory_fraction") {
                native_only = Some(known);
            }
            Ok(value)
        })?;
        Ok(native_only)
    }

    fn apply_cuda_key(&mut self, tokens: &Tokens, key: &str, value: usize) -> Result<(), TorchConfigError> {
        match key {
            BACKEND => {
                let name = tokens.get(value)?;
                let unknown = || TorchConfigError::UnknownBackend { given: name.to_owned() };
                let given = Backend::from_name(name).ok_or_else(unknown)?;
                if given != self.backend {
                    return Err(TorchConfigError::BackendChanged { given, in_use: self.backend });
                }
            }
            "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
                self.release_lock_on_cudamalloc = tokens.flag(value)?;
            }
            "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
                self.pinned_use_cuda_host_register = tokens.flag(value)?;
            }
            "graph_capture_record_stream_reuse" => self.graph_capture_record_stream_reuse = tokens.flag(value)?,
            "pinned_num_register_threads" => {
                let given = tokens.whole(value)?;
                if !given.is_power_of_two() {
                    return Err(TorchConfigError::RegisterThreads { given });
                }
                if given > MAX_REGISTER_THREADS {
                    return Err(TorchConfigError::TooManyRegisterThreads { given });
                }
                self.pinned_num_register_threads = given;
            }
            "pinned_reserve_segment_size_mb" => {
                let given_mb = tokens.whole(value)?;
                if given_mb == 0 {
                    return Err(TorchConfigError::EmptyReserveSegment);
                }
                self.pinned_reserve_segment_size_bytes = Some(given_mb.saturating_mul(MIB));
            }
            _ => {
                let fraction = tokens.number(value)?;
                if !(0.0..=1.0).contains(&fraction) {
                    return Err(TorchConfigError::InvalidFraction);
                }
                self.per_process_memory_fraction = fraction;
            }
        }
        Ok(())
    }
}

/// Calls `apply` with each key and its index; it answers the index of its value's last word. The word after that is passed
/// over, whatever it is.
fn for_each_key(
    tokens: &Tokens,
    mut apply: impl FnMut(&str, usize) -> Result<usize, TorchConfigError>,
) -> Result<(), TorchConfigError> {
    let mut at = 0;
    while at < tokens.len() {
        at = apply(tokens.get(at)?, at)? + 2;
    }
    Ok(())
}

/// The backend that PyTorch installs when its library is loaded: the first named, native unless that is the other one. Mistakes
/// are left to the parsers.
fn backend_at_load(tokens: &Tokens) -> Backend {
    let mut backend = Backend::Native;
    let _ = for_each_key(tokens, |key, at| {
        if key != BACKEND {
            return tokens.skip(at);
        }
        backend = Backend::from_name(tokens.get(tokens.value_of(at)?)?).unwrap_or_default();
        // That was the one looked for.
        Ok(tokens.len())
    });
    backend
}
