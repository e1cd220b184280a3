//! The settings that a run is tried with.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use memtrack::{Backend, Config, ConfigError, Policy};

use super::answer::FitError;
use super::program::Program;
use crate::recording::Recording;
use crate::replay::recorded_config;

/// Settings that have a name here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum PolicyName {
    /// PyTorch's defaults
    Default,
    /// The settings of the recording
    Recorded,
    /// PyTorch's defaults with expandable segments
    Expandable,
    /// memtrack's policy:compact
    Compact,
}

impl PolicyName {
    /// All, in the order they are shown in.
    pub const ALL: [Self; 4] = [Self::Default, Self::Recorded, Self::Expandable, Self::Compact];
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::Recorded => "recorded",
            Self::Expandable => "expandable",
            Self::Compact => "compact",
        })
    }
}

/// Settings as a person wrote them.
#[derive(Debug, Clone)]
pub struct NamedSettings {
    text: String,
    config: Config,
}

/// Why settings are not tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// They are not read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// They say what is searched for.
    #[error("`per_process_memory_fraction` is the limit that is searched for; leave it out")]
    Limit,
    /// The driver's own pool, whose placement is not known.
    #[error("with the backend {0} nothing can be said, since the driver's own pool decides; leave it out")]
    Backend(Backend),
}

impl FromStr for NamedSettings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let config: Config = text.parse()?;
        if config.per_process_memory_fraction < 1.0 {
            return Err(SettingsError::Limit);
        }
        if config.backend != Backend::Native {
            return Err(SettingsError::Backend(config.backend));
        }
        Ok(Self { text: text.to_owned(), config })
    }
}

/// Settings to try a recording with.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// What they are called.
    pub name: String,
    /// What they are.
    pub config: Config,
    /// Whether settings that the recording applies at run time are applied.
    pub changes_settings: bool,
}

impl Candidate {
    /// Settings with a name.
    pub fn new(name: &str, config: Config) -> Self {
        Self { name: name.to_owned(), config, changes_settings: false }
    }

    /// The settings of that name for a recording.
    ///
    /// Those that stand for PyTorch repeat its mistakes, since one of them runs out of memory where it need not.
    ///
    /// # Errors
    ///
    /// Recorded settings that PyTorch refuses, or of another backend.
    pub fn named(name: PolicyName, recording: &Recording) -> Result<Self, FitError> {
        let mut config = Config::default();
        let mut changes_settings = false;
        match name {
            PolicyName::Default => {}
            PolicyName::Recorded => {
                config = recorded_config(recording).map_err(FitError::Configuration)?;
                if config.backend != Backend::Native {
                    return Err(FitError::Backend(config.backend));
                }
                config.per_process_memory_fraction = 1.0;
                changes_settings = Program::changes_settings(recording);
            }
            PolicyName::Expandable => config.expandable_segments = true,
            PolicyName::Compact => config.policy = Policy::Compact,
        }
        // One of the mistakes is to free memory in use once settings were changed, which no device does.
        config.torch_exact = config.policy == Policy::Torch && !changes_settings;
        Ok(Self { changes_settings, ..Self::new(&name.to_string(), config) })
    }

    /// Settings that a person named.
    pub fn given(settings: &NamedSettings) -> Self {
        Self::new(&settings.text, settings.config.clone())
    }

    /// Whether both run the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.config == other.config && self.changes_settings == other.changes_settings
    }
}
