//! PyTorch 2.11's settings: their defaults, and what a text given at start or at run time makes of them.
//!
//! A text is read key by key and takes effect key by key, so one with a mistake leaves in force what stood before it.
//! Some keys return to their defaults with every text, others keep their values.

mod tokens;

use tokens::Tokens;

const MIB: u64 = 1 << 20;
/// The most mebibytes whose bytes fit.
const MOST_MIB: u64 = u64::MAX / MIB;

/// What PyTorch raises for a text, by Python's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsError {
    /// `ValueError`: an unknown key, no boolean, no number, a value that the key does not take.
    Value(String),
    /// `RuntimeError`: the text ends too early, or names another backend than the one that was loaded.
    Runtime(String),
    /// `IndexError`: a number that is out of range.
    Index(String),
}

/// The settings that the device's allocator looks at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    /// `u64::MAX` is no limit.
    pub(super) max_split: u64,
    pub(super) max_non_split_rounding: u64,
    /// 0 is off.
    pub(super) garbage_collection_threshold: f64,
    pub(super) roundup_divisions: [u64; 16],
    pub(super) large_segment: u64,
    pub(super) expandable: bool,
    /// Looked at once, when the allocator is made.
    pub(super) memory_fraction: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_split: u64::MAX,
            max_non_split_rounding: 20 * MIB,
            garbage_collection_threshold: 0.0,
            roundup_divisions: [0; 16],
            large_segment: 20 * MIB,
            expandable: false,
            memory_fraction: 1.0,
        }
    }
}

/// Keys that only the second of PyTorch's two parsers knows.
const CUDA_KEYS: [&str; 9] = [
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "graph_capture_record_stream_reuse",
    "per_process_memory_fraction",
];

impl Settings {
    /// Applies a text; what stood before a mistake stays applied.
    pub(super) fn apply(&mut self, text: &str) -> Result<(), SettingsError> {
        let tokens = Tokens::of(text);
        let defaults = Self::default();
        self.max_split = defaults.max_split;
        self.roundup_divisions = defaults.roundup_divisions;
        self.garbage_collection_threshold = defaults.garbage_collection_threshold;
        self.read_large_segment(&tokens)?;
        self.max_non_split_rounding = self.large_segment;
        self.each_key(&tokens, Self::read_general_key)?;
        self.each_key(&tokens, Self::read_cuda_key)
    }

    fn read_large_segment(&mut self, tokens: &Tokens) -> Result<(), SettingsError> {
        for at in 0..tokens.len() {
            if tokens.get(at)? == "large_segment_size_mb" {
                let mebibytes = tokens.integer(at + 2)?;
                if mebibytes <= 10 {
                    return value_error("CachingAllocator option large_segment_size_mb must be > 10 MB");
                }
                self.large_segment = mebibytes.min(MOST_MIB) * MIB;
            }
        }
        Ok(())
    }

    /// One pass: `read` takes the place of a key and gives that of its value's last token. What stands between a value and
    /// the next key is counted, not looked at.
    fn each_key(
        &mut self,
        tokens: &Tokens,
        read: fn(&mut Self, &Tokens, usize) -> Result<usize, SettingsError>,
    ) -> Result<(), SettingsError> {
        let mut at = 0;
        while at < tokens.len() {
            at = read(self, tokens, at)? + 2;
        }
        Ok(())
    }

    fn read_general_key(&mut self, tokens: &Tokens, at: usize) -> Result<usize, SettingsError> {
        let value = at + 2;
        match tokens.get(at)? {
            "large_segment_size_mb" => {}
            "max_split_size_mb" => {
                self.max_split = self.at_least_a_segment(tokens.integer(value)?, "max_split_size_mb")?
            }
            "max_non_split_rounding_mb" => {
                let mebibytes = tokens.integer(value)?;
                self.max_non_split_rounding = self.at_least_a_segment(mebibytes, "max_non_split_rounding_mb")?;
            }
            "garbage_collection_threshold" => {
                let threshold = tokens.real(value)?;
                if !(threshold > 0.0 && threshold < 1.0) {
                    return value_error("garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
                }
                self.garbage_collection_threshold = threshold;
            }
            "roundup_power2_divisions" => return self.read_roundup(tokens, value),
            "expandable_segments" => self.expandable = tokens.boolean(value)?,
            "pinned_use_background_threads" => drop(tokens.boolean(value)?),
            key if CUDA_KEYS.contains(&key) => return tokens.skip_value(at),
            key => return value_error(&format!("Unrecognized key '{key}' in Accelerator allocator config.")),
        }
        Ok(value)
    }

    fn at_least_a_segment(&self, mebibytes: u64, key: &str) -> Result<u64, SettingsError> {
        let least = self.large_segment / MIB;
        if mebibytes < least {
            return value_error(&format!("CachingAllocator option {key} too small, must be >= {least}"));
        }
        Ok(mebibytes.min(MOST_MIB) * MIB)
    }

    /// One number for all sizes, or a list in brackets; `at` is the number or the bracket.
    fn read_roundup(&mut self, tokens: &Tokens, mut at: usize) -> Result<usize, SettingsError> {
        if tokens.get(at)? != "[" {
            let divisions = tokens.integer(at)?;
            if !divisions.is_power_of_two() {
                return value_error("For roundups, the divisions has to be power of 2");
            }
            self.roundup_divisions = [divisions; 16];
            return Ok(at);
        }
        let (mut last, mut first) = (0, true);
        at += 1;
        while tokens.get(at)? != "]" {
            let divisions = tokens.integer(at + 2)?;
            if divisions != 0 && !divisions.is_power_of_two() {
                return value_error("For roundups, the divisions has to be power of 2 or 0 to disable roundup");
            }
            if tokens.get(at)? == ">" {
                self.roundup_divisions[last + 1..].fill(divisions);
            } else {
                let boundary = tokens.integer(at)?;
                if !boundary.is_power_of_two() {
                    return value_error("For roundups, the intervals have to be power of 2");
                }
                last = boundary.ilog2().min(15) as usize;
                if std::mem::take(&mut first) {
                    self.roundup_divisions[..last].fill(divisions);
                }
                self.roundup_divisions[last] = divisions;
            }
            at += if tokens.get(at + 3)? == "]" { 3 } else { 4 };
        }
        Ok(at)
    }

    fn read_cuda_key(&mut self, tokens: &Tokens, at: usize) -> Result<usize, SettingsError> {
        let value = at + 2;
        match tokens.get(at)? {
            "backend" => match tokens.get(value)? {
                "native" => {}
                "cudaMallocAsync" => {
                    return Err(SettingsError::Runtime(String::from("backend parsed at runtime != at load time")));
                }
                _ => return value_error("Unknown allocator backend, options are native and cudaMallocAsync"),
            },
            "release_lock_on_cudamalloc"
            | "release_lock_on_hipmalloc"
            | "pinned_use_cuda_host_register"
            | "pinned_use_hip_host_register"
            | "graph_capture_record_stream_reuse" => drop(tokens.boolean(value)?),
            "pinned_num_register_threads" => {
                let threads = tokens.integer(value)?;
                if !threads.is_power_of_two() || threads > 128 {
                    return value_error("Number of register threads has to be power of 2, at most 128");
                }
            }
            "pinned_reserve_segment_size_mb" => {
                if tokens.integer(value)? == 0 {
                    return value_error("Pinned reserve segment size has to be greater than 0");
                }
            }
            "per_process_memory_fraction" => {
                let fraction = tokens.real(value)?;
                if !(0.0..=1.0).contains(&fraction) {
                    return value_error("per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
                }
                self.memory_fraction = fraction;
            }
            _ => return tokens.skip_value(at),
        }
        Ok(value)
    }
}

fn value_error<T>(text: &str) -> Result<T, SettingsError> {
    Err(SettingsError::Value(text.to_owned()))
}
