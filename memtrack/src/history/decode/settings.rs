//! The allocator's settings, which newer versions may have others of.

use std::sync::Arc;

use super::{Decoder, Problem, integer, wrong};
use crate::history::settings::{AllocatorSettings, SettingValue};
use crate::history::value::Value;

/// How deep settings may be nested; PyTorch's are two levels.
const SETTING_DEPTH: u32 = 8;

impl Decoder<'_> {
    pub(super) fn settings(&mut self, value: Value) -> Result<AllocatorSettings, Problem> {
        let mut settings = AllocatorSettings::default();
        self.dict(value, |decoder, key, value| {
            let value = decoder.setting(value, SETTING_DEPTH)?;
            let right = match key {
                "PYTORCH_CUDA_ALLOC_CONF" => matches!(value, SettingValue::Text(_)),
                "max_split_size" | "pinned_num_register_threads" => matches!(value, SettingValue::Integer(_)),
                "garbage_collection_threshold" => matches!(value, SettingValue::Float(_) | SettingValue::Integer(_)),
                "expandable_segments"
                | "release_lock_on_cudamalloc"
                | "pinned_use_cuda_host_register"
                | "graph_capture_record_stream_reuse" => matches!(value, SettingValue::Bool(_)),
                "roundup_power2_divisions" => matches!(value, SettingValue::Table(_)),
                _ => true,
            };
            if !right {
                return wrong("a setting of PyTorch's type", setting_kind(&value));
            }
            settings.entries.push((Arc::from(key), value));
            Ok(())
        })?;
        Ok(settings)
    }

    fn setting(&mut self, value: Value, depth_left: u32) -> Result<SettingValue, Problem> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return wrong("a setting of few levels", format!("more than {SETTING_DEPTH} levels"));
        };
        Ok(match value {
            Value::None => SettingValue::None,
            Value::Bool(value) => SettingValue::Bool(value),
            Value::Integer(_) | Value::Unsigned(_) => SettingValue::Integer(integer(value)?),
            Value::Float(value) => SettingValue::Float(value),
            Value::Text(index) => SettingValue::Text(Arc::clone(self.values.text(index))),
            Value::List(_) | Value::Tuple(_) => {
                SettingValue::List(self.list(value, |decoder, item| decoder.setting(item, depth_left))?)
            }
            Value::Dict(_) => {
                let mut table = Vec::new();
                self.dict(value, |decoder, key, value| {
                    table.push((Arc::from(key), decoder.setting(value, depth_left)?));
                    Ok(())
                })?;
                SettingValue::Table(table)
            }
        })
    }
}

fn setting_kind(value: &SettingValue) -> &'static str {
    match value {
        SettingValue::None => "nothing",
        SettingValue::Bool(_) => "a boolean",
        SettingValue::Integer(_) => "an integer",
        SettingValue::Float(_) => "a float",
        SettingValue::Text(_) => "a text",
        SettingValue::List(_) => "a list",
        SettingValue::Table(_) => "a dict",
    }
}
