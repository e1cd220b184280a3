//! The allocator's settings as a snapshot lists them.

use std::sync::Arc;

/// One setting's value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SettingValue {
    /// Python's `None`.
    None,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number that may have a fraction.
    Float(f64),
    /// Text.
    Text(Arc<str>),
    /// Several values.
    List(Vec<SettingValue>),
    /// Values by name, such as the roundings by power of two.
    Table(Vec<(Arc<str>, SettingValue)>),
}

impl From<bool> for SettingValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for SettingValue {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for SettingValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for SettingValue {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

/// The settings in order, by PyTorch's names. Names that this library does not know are kept.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct AllocatorSettings {
    /// Name and value.
    pub entries: Vec<(Arc<str>, SettingValue)>,
}

impl AllocatorSettings {
    /// All settings of PyTorch 2.11 at their defaults, and the text they came from.
    pub fn torch_defaults(text: &str) -> Self {
        let roundings = (0..16).map(|power| (Arc::from((1_u32 << power).to_string()), SettingValue::Integer(0)));
        let mut settings = Self::default();
        settings.set("PYTORCH_CUDA_ALLOC_CONF", text);
        settings.set("max_split_size", -1_i64);
        settings.set("garbage_collection_threshold", 0.0);
        settings.set("expandable_segments", false);
        settings.set("pinned_num_register_threads", 1_i64);
        settings.set("release_lock_on_cudamalloc", false);
        settings.set("pinned_use_cuda_host_register", false);
        settings.set("graph_capture_record_stream_reuse", false);
        settings.set("roundup_power2_divisions", SettingValue::Table(roundings.collect()));
        settings
    }

    /// The value of a setting.
    pub fn get(&self, name: &str) -> Option<&SettingValue> {
        self.entries.iter().find(|(entry, _)| &**entry == name).map(|(_, value)| value)
    }

    /// Sets a value, in place if the name is there, else at the end.
    pub fn set(&mut self, name: &str, value: impl Into<SettingValue>) {
        let value = value.into();
        match self.entries.iter_mut().find(|(entry, _)| &**entry == name) {
            Some((_, old)) => *old = value,
            None => self.entries.push((name.into(), value)),
        }
    }
}
