//! What an allocator can be told, by value or as text.
//!
//! The text has the keys and the grammar of PyTorch's `PYTORCH_CUDA_ALLOC_CONF`, read strictly and as a whole: one
//! mistake and nothing is applied, where PyTorch skips separators, ignores trailing junk and keeps what came first.

use std::str::FromStr;

use super::rounding::{INTERVAL_COUNT, RoundupDivisions};
use crate::units::MIB;

/// The environment variable that [`Config::from_env`] reads.
pub const ENVIRONMENT_VARIABLE: &str = "MEMTRACK_ALLOC_CONF";

const ACCEPTED_KEYS: &str = "policy, max_split_size_mb, max_non_split_rounding_mb, large_segment_size_mb, roundup_power2_divisions, garbage_collection_threshold, per_process_memory_fraction";

/// How an allocator works. [`Config::default`] is PyTorch's default.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Blocks of at least this many bytes are never split, nor given to smaller requests. `None`: no limit.
    pub max_split_size_bytes: Option<u64>,
    /// How much larger than a request an unsplittable block may be and still serve it.
    pub max_non_split_rounding_bytes: u64,
    /// The segment for requests above 1 MiB and below 10 MiB; a larger request gets one of its own size.
    pub large_segment_size_bytes: u64,
    /// Rounding of requests to fractions of a power of two.
    pub roundup_power2_divisions: RoundupDivisions,
    /// With a memory limit: free unused segments once this share of it is reserved. `None`: never.
    pub garbage_collection_threshold: Option<f64>,
    /// The share of the device's total memory that may be reserved, from 0 to 1; 1 is no limit.
    pub per_process_memory_fraction: f64,
    /// Grow expandable segments instead of taking segments of fixed size.
    pub expandable_segments: bool,
    /// PyTorch's numbers also where PyTorch is wrong.
    pub torch_exact: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_split_size_bytes: None,
            max_non_split_rounding_bytes: 20 * MIB,
            large_segment_size_bytes: 20 * MIB,
            roundup_power2_divisions: RoundupDivisions::default(),
            garbage_collection_threshold: None,
            per_process_memory_fraction: 1.0,
            expandable_segments: false,
            torch_exact: false,
        }
    }
}

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

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("allocator configuration, `{key}`: {problem}")]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The setting, by its key in the text form.
    pub key: &'static str,
    /// What is wrong and what is accepted.
    pub problem: String,
}

/// Why the environment gave no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// The text is wrong.
    #[error("{ENVIRONMENT_VARIABLE}: {0}")]
    Config(#[from] ConfigError),
    /// The value is not Unicode.
    #[error("{ENVIRONMENT_VARIABLE} is not Unicode text; write key:value pairs separated by commas")]
    NotUnicode,
}

impl Config {
    /// Whether the settings make sense, each and together.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`] names the first that does not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem: String| Err(InvalidSetting { key, problem });
        let least_bytes = self.large_segment_size_bytes;
        if least_bytes <= 10 * MIB {
            return refuse("large_segment_size_mb", "must be more than 10".to_owned());
        }
        let at_least = [
            ("max_split_size_mb", self.max_split_size_bytes.unwrap_or(u64::MAX)),
            ("max_non_split_rounding_mb", self.max_non_split_rounding_bytes),
        ];
        for (key, bytes) in at_least {
            if bytes < least_bytes {
                return refuse(key, format!("must be at least the large segment size, {}", least_bytes / MIB));
            }
        }
        if self.garbage_collection_threshold.is_some_and(|threshold| !(threshold > 0.0 && threshold < 1.0)) {
            return refuse("garbage_collection_threshold", "must be above 0 and below 1".to_owned());
        }
        if !(0.0..=1.0).contains(&self.per_process_memory_fraction) {
            return refuse("per_process_memory_fraction", "must be from 0 to 1".to_owned());
        }
        Ok(())
    }

    /// Reads `MEMTRACK_ALLOC_CONF`; the default when it is not set or empty.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] when the text is malformed.
    pub fn from_env() -> Result<Self, EnvironmentError> {
        match std::env::var(ENVIRONMENT_VARIABLE) {
            Ok(text) => Ok(text.parse()?),
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(std::env::VarError::NotUnicode(_)) => Err(EnvironmentError::NotUnicode),
        }
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    /// Reads `key:value,key:value`; white space around keys and values is allowed.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut seen: Vec<(&str, &str)> = Vec::new();
        let mut rounding_given = false;
        if text.trim().is_empty() {
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
                let problem = if item.trim().is_empty() {
                    "a key is missing between or after commas".to_owned()
                } else {
                    format!("`{}` has no value; write key:value", item.trim())
                };
                return fail("", item, problem);
            };
            let (key, value) = (key_part.trim(), value_part.trim());
            if key.is_empty() {
                return fail(key, item, "a key is missing before the colon".to_owned());
            }
            if seen.iter().any(|(given, _)| *given == key) {
                return fail(key, key_part, format!("`{key}` given twice"));
            }
            seen.push((key, value));
            let result = match key {
                "policy" => policy(value),
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
                "expandable_segments" => boolean(value).map(|on| config.expandable_segments = on),
                "torch_exact" => boolean(value).map(|on| config.torch_exact = on),
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
    let trimmed = part.trim_start();
    let offset = (trimmed.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    text.get(..offset).map_or(1, |before| before.chars().count() + 1)
}

fn policy(value: &str) -> Result<(), String> {
    match value {
        "torch" => Ok(()),
        _ => Err("accepted is `torch`".to_owned()),
    }
}

fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err("must be True or False".to_owned()),
    }
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

fn number(value: &str) -> Result<f64, String> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    value.parse::<f64>().ok().filter(|_| plain).ok_or_else(|| "must be a number such as 0.8".to_owned())
}

fn divisions(value: &str) -> Result<RoundupDivisions, String> {
    let Some(list) = value.strip_prefix('[') else {
        let divisions = whole(value)?;
        if !divisions.is_power_of_two() {
            return Err("must be a power of two".to_owned());
        }
        return RoundupDivisions::uniform(divisions).ok_or_else(|| "too large".to_owned());
    };
    let Some(list) = list.strip_suffix(']') else {
        return Err("the list has no closing bracket".to_owned());
    };
    let mut table = [0_u64; INTERVAL_COUNT];
    let mut last = None;
    let mut given = Vec::new();
    for pair in list.split(',').map(str::trim) {
        let Some((boundary, divisions)) = pair.split_once(':') else {
            return Err(format!("`{pair}` is no pair; write megabytes:divisions or >:divisions"));
        };
        if given.contains(&boundary.trim()) {
            return Err(format!("boundary {} given twice", boundary.trim()));
        }
        given.push(boundary.trim());
        let divisions = whole(divisions.trim())?;
        if divisions != 0 && !divisions.is_power_of_two() {
            return Err(format!("divisions {divisions} must be 0 or a power of two"));
        }
        if boundary.trim() == ">" {
            let from = last.map_or(0, |index: usize| index + 1);
            table.iter_mut().skip(from).for_each(|entry| *entry = divisions);
            continue;
        }
        let boundary = whole(boundary.trim())?;
        if !boundary.is_power_of_two() {
            return Err(format!("boundary {boundary} must be a power of two"));
        }
        let index = boundary.ilog2() as usize;
        if index >= INTERVAL_COUNT {
            return Err(format!("boundary {boundary} is above the last, {}", 1_u32 << (INTERVAL_COUNT - 1)));
        }
        if last.is_none() {
            table.iter_mut().take(index).for_each(|entry| *entry = divisions);
        }
        table[index] = divisions;
        last = Some(index);
    }
    RoundupDivisions::from_table(table).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "policy:torch, max_split_size_mb:64,large_segment_size_mb:32,roundup_power2_divisions:[256:1,512:2,>:8],garbage_collection_threshold:0.8,per_process_memory_fraction:0.5";
        let config: Config = text.parse().unwrap();
        assert_eq!(config.max_split_size_bytes, Some(64 * MIB));
        assert_eq!(config.large_segment_size_bytes, 32 * MIB);
        assert_eq!(config.max_non_split_rounding_bytes, 32 * MIB, "follows the large segment size");
        assert_eq!(config.garbage_collection_threshold, Some(0.8));
        assert_eq!(config.per_process_memory_fraction, 0.5);
        assert_eq!("".parse::<Config>(), Ok(Config::default()));
        assert_eq!("  ".parse::<Config>(), Ok(Config::default()));
    }

    #[test]
    fn a_mistake_names_its_key_and_place_and_nothing_is_applied() {
        let position = |text: &str| text.parse::<Config>().unwrap_err().position;
        let message = |text: &str| text.parse::<Config>().unwrap_err().to_string();
        assert_eq!(position("max_split_size_mb:64,foo:1"), 22);
        assert!(message("max_split_size_mb:64,foo:1").contains("unknown key `foo`; known are policy"));
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
        assert!(message("per_process_memory_fraction:1.1").contains("from 0 to 1"));
        assert!(message("policy:fast").contains("accepted is `torch`"));
        assert!(message("roundup_power2_divisions:3").contains("power of two"));
        assert!(message("roundup_power2_divisions:[256:1").contains("closing bracket"));
        assert!(message("roundup_power2_divisions:[256]").contains("no pair"));
        assert!(message("roundup_power2_divisions:[256:1,256:2]").contains("boundary 256 given twice"));
        assert!(message("roundup_power2_divisions:[>:8,>:4]").contains("boundary > given twice"));
        assert!(message("roundup_power2_divisions:[65536:4]").contains("above the last, 32768"));
        assert!(message(":").contains("a key is missing before the colon"));
        assert_eq!(position("roundup_power2_divisions:[1:3]"), 26);
        assert_eq!(position("größe:1"), 1);
    }

    #[test]
    fn settings_by_value_are_held_to_the_same_rules() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().key
        };
        assert_eq!(Config::default().check(), Ok(()));
        assert_eq!(refused(|config| config.per_process_memory_fraction = f64::NAN), "per_process_memory_fraction");
        assert_eq!(refused(|config| config.per_process_memory_fraction = -1.0), "per_process_memory_fraction");
        assert_eq!(
            refused(|config| config.garbage_collection_threshold = Some(f64::NAN)),
            "garbage_collection_threshold"
        );
        assert_eq!(refused(|config| config.large_segment_size_bytes = 0), "large_segment_size_mb");
        assert_eq!(refused(|config| config.max_split_size_bytes = Some(1)), "max_split_size_mb");
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
