//! The settings as PyTorch's snapshots show them.

use super::Config;
use crate::history::{AllocatorSettings, SettingValue};

impl Config {
    /// What a snapshot of PyTorch's shows under `allocator_settings`: the same nine keys in the same order, with the same
    /// values. Unlimited split sizes show as -1, no garbage collection as 0.
    ///
    /// ```
    /// use memtrack::{Config, history::SettingValue};
    /// let settings = Config::from_torch("max_split_size_mb:64")?.allocator_settings();
    /// assert_eq!(settings.get("max_split_size"), Some(&SettingValue::Integer(64 << 20)));
    /// # Ok::<(), memtrack::TorchConfigError>(())
    /// ```
    pub fn allocator_settings(&self) -> AllocatorSettings {
        let table = self.roundup_power2_divisions.table().into_iter().enumerate();
        // PyTorch shows them as signed numbers of 64 bits.
        let divisions =
            table.map(|(power, divisions)| ((1_u64 << power).to_string().into(), (divisions as i64).into()));
        let mut settings = AllocatorSettings::default();
        settings.set("PYTORCH_CUDA_ALLOC_CONF", self.last_settings());
        settings.set("max_split_size", self.signed_max_split_size());
        settings.set("garbage_collection_threshold", self.garbage_collection_threshold.unwrap_or(0.0));
        settings.set("expandable_segments", self.expandable_segments);
        settings.set("pinned_num_register_threads", self.pinned_num_register_threads as i64);
        settings.set("release_lock_on_cudamalloc", self.release_lock_on_cudamalloc);
        settings.set("pinned_use_cuda_host_register", self.pinned_use_cuda_host_register);
        settings.set("graph_capture_record_stream_reuse", self.graph_capture_record_stream_reuse);
        settings.set("roundup_power2_divisions", SettingValue::Table(divisions.collect()));
        settings
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
