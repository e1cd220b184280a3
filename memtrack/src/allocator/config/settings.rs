//! The settings as PyTorch's snapshots show them.

use super::Config;

/// The value of one entry of [`Config::allocator_settings`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SettingValue {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// Divisions by the size in MiB that they begin at.
    Divisions([(&'static str, u64); 16]),
}

/// The sizes in MiB at which the entries of the table of divisions begin.
const BOUNDARIES: [&str; 16] =
    ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"];

impl Config {
    /// What a snapshot of PyTorch's shows under `allocator_settings`: the same nine keys in the same order, with the same
    /// values. Unlimited split sizes show as -1, no garbage collection as 0.
    ///
    /// ```
    /// use memtrack::{Config, SettingValue};
    /// let settings = Config::from_torch("max_split_size_mb:64")?.allocator_settings();
    /// assert_eq!(settings[1], ("max_split_size", SettingValue::Integer(64 << 20)));
    /// # Ok::<(), memtrack::TorchConfigError>(())
    /// ```
    pub fn allocator_settings(&self) -> [(&'static str, SettingValue); 9] {
        let table = self.roundup_power2_divisions.table();
        let divisions = std::array::from_fn(|index| (BOUNDARIES[index], table[index]));
        let threads = i64::try_from(self.pinned_num_register_threads).unwrap_or(i64::MAX);
        [
            ("PYTORCH_CUDA_ALLOC_CONF", SettingValue::Text(self.origin.text.clone())),
            ("max_split_size", SettingValue::Integer(self.signed_max_split_size())),
            ("garbage_collection_threshold", SettingValue::Number(self.garbage_collection_threshold.unwrap_or(0.0))),
            ("expandable_segments", SettingValue::Flag(self.expandable_segments)),
            ("pinned_num_register_threads", SettingValue::Integer(threads)),
            ("release_lock_on_cudamalloc", SettingValue::Flag(self.release_lock_on_cudamalloc)),
            ("pinned_use_cuda_host_register", SettingValue::Flag(self.pinned_use_cuda_host_register)),
            ("graph_capture_record_stream_reuse", SettingValue::Flag(self.graph_capture_record_stream_reuse)),
            ("roundup_power2_divisions", SettingValue::Divisions(divisions)),
        ]
    }

    /// The split limit as the statistics show it: -1 without one, and negative from 2^63 bytes up, as PyTorch's.
    pub(crate) fn signed_max_split_size(&self) -> i64 {
        self.max_split_size_bytes.map_or(-1, |bytes| bytes as i64)
    }

    /// The text that was read last, also when it was refused: empty for settings by value.
    pub fn last_settings(&self) -> &str {
        &self.origin.text
    }
}
