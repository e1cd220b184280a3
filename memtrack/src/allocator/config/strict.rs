//! The strict reader: one mistake and nothing is applied.
//!
//! It accepts PyTorch's keys and grammar only where PyTorch means the same by them, so a text it accepts configures both alike.
//! memtrack's own keys come on top.

use std::str::FromStr;

use super::numbers::double;
use super::{Backend, Config, InvalidSetting, ONE_DIVISION, Policy};
use crate::allocator::rounding::{INTERVAL_COUNT, RoundupDivisions};
use crate::units::MIB;

const ACCEPTED_KEYS: &str = "policy, torch_exact, compact_slack_percent, max_split_size_mb, max_non_split_rounding_mb, large_segment_size_mb, \
                             roundup_power2_divisions, garbage_collection_threshold, per_process_memory_fraction, \
                             expandable_segments, backend, release_lock_on_cudamalloc (or release_lock_on_hipmalloc), \
                             graph_capture_record_stream_reuse, pinned_use_background_threads, \
                             pinned_use_cuda_host_register (or pinned_use_hip_host_register), \
                             pinned_num_register_threads, pinned_reserve_segment_size_mb";

/// What may stand around keys and values: what C takes for white space, as PyTorch does, and nothing else.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];

/// Why a configuration text was refused. Nothing of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("allocator configuration, character {position}: {problem} (in `{text}`)")]
#[non_exhaustive]
pub struct ConfigError {
    /// The whole text.
    pub text: String,
    /// Where, counted in characters from 1.
    pub position: usize,
    /// The key concerned, empty when there is none.
    pub key: String,
    /// What is wrong and what is accepted.
    pub problem: String,
}

impl FromStr for Config {
    type Err = ConfigError;

    /// Reads `key:value,key:value`; white space around keys and values is allowed.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        text.clone_into(&mut config.origin.text);
        let mut seen: Vec<(&str, &str)> = Vec::new();
        let mut rounding_given = false;
        if trimmed(text).is_empty() {
            return Ok(config);
        }
        for item in items(text) {
            let fail = |key: &str, part: &str, problem: String| {
                Err(ConfigError {
                    text: text.to_owned(),
                    position: position_of(text, part),
                    key: key.to_owned(),
                    problem,
                })
            };
            let Some((key_part, value_part)) = item.split_once(':') else {
                let problem = if trimmed(item).is_empty() {
                    "a key is missing between or after commas".to_owned()
                } else {
                    format!("`{}` has no value; write key:value", trimmed(item))
                };
                return fail("", item, problem);
            };
            let (key, value) = (trimmed(key_part), trimmed(value_part));
            if key.is_empty() {
                return fail(key, item, "a key is missing before the colon".to_owned());
            }
            let name = cuda_name(key);
            if seen.iter().any(|(given, _)| *given == name) {
                return fail(key, key_part, format!("`{key}` given twice"));
            }
            seen.push((name, value));
            let result = match name {
                "policy" => policy(value).map(|policy| config.policy = policy),
                "compact_slack_percent" => number(value).map(|percent| config.compact_slack_percent = percent),
                "torch_exact" => flag(value).map(|flag| config.torch_exact = flag),
                "expandable_segments" => flag(value).map(|flag| config.expandable_segments = flag),
                "backend" => backend(value).map(|backend| config.backend = backend),
                "release_lock_on_cudamalloc" => flag(value).map(|flag| config.release_lock_on_cudamalloc = flag),
                "graph_capture_record_stream_reuse" => {
                    flag(value).map(|flag| config.graph_capture_record_stream_reuse = flag)
                }
                "pinned_use_background_threads" => flag(value).map(|flag| config.pinned_use_background_threads = flag),
                "pinned_use_cuda_host_register" => flag(value).map(|flag| config.pinned_use_cuda_host_register = flag),
                "pinned_num_register_threads" => {
                    whole(value).map(|threads| config.pinned_num_register_threads = threads)
                }
                "pinned_reserve_segment_size_mb" => {
                    mebibytes(value).map(|bytes| config.pinned_reserve_segment_size_bytes = Some(bytes))
                }
                "max_split_size_mb" => mebibytes(value).map(|bytes| config.max_split_size_bytes = Some(bytes)),
                "max_non_split_rounding_mb" => {
                    rounding_given = true;
                    mebibytes(value).map(|bytes| config.max_non_split_rounding_bytes = bytes)
                }
                "large_segment_size_mb" => mebibytes(value).map(|bytes| config.large_segment_size_bytes = bytes),
                "roundup_power2_divisions" => {
                    divisions(value).map(|divisions| config.roundup_power2_divisions = divisions)
                }
                "garbage_collection_threshold" => {
                    number(value).map(|threshold| config.garbage_collection_threshold = Some(threshold))
                }
                "per_process_memory_fraction" => {
                    number(value).map(|fraction| config.per_process_memory_fraction = fraction)
                }
                _ => return fail(key, key_part, format!("unknown key `{key}`; known are {ACCEPTED_KEYS}")),
            };
            if let Err(problem) = result {
                return fail(key, value_part, format!("`{key}`: `{value}`: {problem}"));
            }
        }
        if !rounding_given {
            config.max_non_split_rounding_bytes = config.large_segment_size_bytes;
        }
        config.check().map_err(|InvalidSetting { key, problem }| {
            let value = seen.iter().find(|(given, _)| *given == key).map_or("", |(_, value)| value);
            ConfigError {
                text: text.to_owned(),
                position: position_of(text, value),
                key: key.to_owned(),
                problem: format!("`{key}`: `{value}`: {problem}"),
            }
        })?;
        Ok(config)
    }
}

/// The text's parts between commas outside brackets.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

/// Where a part that was cut out of `text` begins, in characters from 1, after its white space.
fn position_of(text: &str, part: &str) -> usize {
    let start = part.trim_start_matches(BLANKS);
    let offset = (start.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    text.get(..offset).map_or(1, |before| before.chars().count() + 1)
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(BLANKS)
}

/// The name of a key that PyTorch also knows by its name on AMD's cards.
fn cuda_name(key: &str) -> &str {
    match key {
        "release_lock_on_hipmalloc" => "release_lock_on_cudamalloc",
        "pinned_use_hip_host_register" => "pinned_use_cuda_host_register",
        key => key,
    }
}

fn flag(value: &str) -> Result<bool, String> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err("must be True or False".to_owned()),
    }
}

fn backend(value: &str) -> Result<Backend, String> {
    Backend::from_name(value).ok_or_else(|| "accepted are native and cudaMallocAsync".to_owned())
}

fn policy(value: &str) -> Result<Policy, String> {
    value.parse().map_err(|_| "accepted are `torch` and `compact`".to_owned())
}

fn whole(value: &str) -> Result<u64, String> {
    if !value.bytes().all(|byte| byte.is_ascii_digit()) || value.is_empty() {
        return Err("must be a whole number".to_owned());
    }
    value.parse().map_err(|_| "too large".to_owned())
}

fn mebibytes(value: &str) -> Result<u64, String> {
    let megabytes = whole(value).map_err(|problem| format!("{problem} (of MiB)"))?;
    megabytes
        .checked_mul(MIB)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| "too large; it is in MiB".to_owned())
}

/// Digits with at most one point; `double` then refuses what is too small for C's library too.
fn number(value: &str) -> Result<f64, String> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && value.matches('.').count() <= 1;
    double(value).ok().filter(|_| plain).ok_or_else(|| "must be a number such as 0.8".to_owned())
}

fn divisions(value: &str) -> Result<RoundupDivisions, String> {
    let Some(list) = value.strip_prefix('[') else {
        let divisions = whole(value)?;
        if divisions == 0 {
            return Err("must be a power of two; leave the key out for no rounding".to_owned());
        }
        return accepted(divisions).and_then(uniform);
    };
    let Some(list) = list.strip_suffix(']') else {
        return Err("the list has no closing bracket".to_owned());
    };
    let mut table = RoundupDivisions::default();
    let mut last = None;
    let mut given = Vec::new();
    for pair in list.split(',').map(trimmed) {
        let Some((boundary, divisions)) = pair.split_once(':') else {
            return Err(format!("`{pair}` is no pair; write megabytes:divisions or >:divisions"));
        };
        let boundary = trimmed(boundary);
        let divisions = accepted(whole(trimmed(divisions))?)?;
        if boundary == ">" {
            let Some(last) = last else {
                // PyTorch leaves the first entry as it is then, though the list names no other.
                return Err("> must come after a boundary; write a number alone for all sizes".to_owned());
            };
            if given.contains(&None) {
                return Err("boundary > given twice".to_owned());
            }
            given.push(None);
            table.fill(last + 1..INTERVAL_COUNT, divisions);
            continue;
        }
        let boundary = whole(boundary)?;
        if !boundary.is_power_of_two() {
            return Err(format!("boundary {boundary} must be a power of two"));
        }
        if given.contains(&Some(boundary)) {
            return Err(format!("boundary {boundary} given twice"));
        }
        given.push(Some(boundary));
        let index = boundary.ilog2() as usize;
        if index >= INTERVAL_COUNT {
            return Err(format!("boundary {boundary} is above the last, {}", 1_u32 << (INTERVAL_COUNT - 1)));
        }
        let from = if last.is_none() { 0 } else { index };
        table.fill(from..index + 1, divisions);
        last = Some(index);
    }
    Ok(table)
}

/// 0 or a power of two; 1 means something else to PyTorch than to whoever writes it.
fn accepted(divisions: u64) -> Result<u64, String> {
    match divisions {
        1 => Err(ONE_DIVISION.to_owned()),
        0 => Ok(0),
        _ if divisions.is_power_of_two() => Ok(divisions),
        _ => Err(format!("divisions {divisions} must be 0 or a power of two")),
    }
}

fn uniform(divisions: u64) -> Result<RoundupDivisions, String> {
    RoundupDivisions::uniform(divisions).ok_or_else(|| "must be a power of two".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "policy:torch,compact_slack_percent:0.5, max_split_size_mb:64,large_segment_size_mb:32,roundup_power2_divisions:[256:0,512:2,>:8],garbage_collection_threshold:0.8,per_process_memory_fraction:0.5";
        let config: Config = text.parse().unwrap();
        assert_eq!(config.max_split_size_bytes, Some(64 * MIB));
        assert_eq!(config.large_segment_size_bytes, 32 * MIB);
        assert_eq!(config.max_non_split_rounding_bytes, 32 * MIB, "follows the large segment size");
        assert_eq!(config.garbage_collection_threshold, Some(0.8));
        assert_eq!(config.per_process_memory_fraction, 0.5);
        assert_eq!(config.compact_slack_percent, 0.5);
        assert_eq!("".parse::<Config>(), Ok(Config::default()));
        assert_eq!("  ".parse::<Config>(), Ok(Config::default()));
    }

    #[test]
    fn a_mistake_names_its_key_and_place_and_nothing_is_applied() {
        let position = |text: &str| text.parse::<Config>().unwrap_err().position;
        let message = |text: &str| text.parse::<Config>().unwrap_err().to_string();
        assert_eq!(position("max_split_size_mb:64,foo:1"), 22);
        assert!(message("max_split_size_mb:64,foo:1").contains("unknown key `foo`; known are policy, torch_exact"));
        assert!(message("max_split_size_mb,64").contains("`max_split_size_mb` has no value"));
        assert!(message("max_split_size_mb:64,").contains("a key is missing"));
        assert!(message("max_split_size_mb:64,,policy:torch").contains("a key is missing"));
        assert!(message("max_split_size_mb:30abc").contains("whole number"));
        assert!(message("max_split_size_mb:-1").contains("whole number"));
        assert!(message("max_split_size_mb:2").contains("at least the large segment size, 20"));
        assert!(message("max_split_size_mb:99999999999999").contains("too large"));
        assert!(message("max_split_size_mb:64,max_split_size_mb:64").contains("given twice"));
        assert!(message("garbage_collection_threshold:1").contains("below 1"));
        assert!(message("garbage_collection_threshold:NaN").contains("must be a number"));
        assert!(message("garbage_collection_threshold:0.5.5").contains("must be a number"));
        assert!(message("garbage_collection_threshold:0x.8").contains("must be a number"));
        assert!(message("per_process_memory_fraction:1.1").contains("from 0 to 1"));
        assert!(message("compact_slack_percent:100.1").contains("from 0 to 100"));
        assert!(message("compact_slack_percent:-1").contains("must be a number"));
        assert!(message("policy:fast").contains("accepted are `torch` and `compact`"));
        assert!(message("roundup_power2_divisions:3").contains("power of two"));
        assert!(message("roundup_power2_divisions:[256:2").contains("closing bracket"));
        assert!(message("roundup_power2_divisions:[256]").contains("no pair"));
        assert!(message("roundup_power2_divisions:[256:4,256:2]").contains("boundary 256 given twice"));
        assert!(message("roundup_power2_divisions:[1:2,>:8,>:4]").contains("boundary > given twice"));
        assert!(message("roundup_power2_divisions:[65536:4]").contains("above the last, 32768"));
        assert!(message(":").contains("a key is missing before the colon"));
        assert_eq!(position("roundup_power2_divisions:[1:3]"), 26);
        assert_eq!(position("größe:1"), 1);
    }

    #[test]
    fn division_lists_fill_as_pytorch_fills_them() {
        let table = |text: &str| text.parse::<Config>().unwrap().roundup_power2_divisions.table();
        let list = table("roundup_power2_divisions:[512:2,>:4,1024:8]");
        assert_eq!(&list[..10], &[2; 10]);
        assert_eq!(list[10], 8);
        assert_eq!(&list[11..], &[4; 5]);
        assert_eq!(table("roundup_power2_divisions:[4:2,1:8]")[..4], [8, 2, 2, 0]);
        assert_eq!(table("roundup_power2_divisions:8"), [8; 16]);
    }
}
