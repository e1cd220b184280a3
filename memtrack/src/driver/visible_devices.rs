//! `CUDA_VISIBLE_DEVICES`: which devices a CUDA program sees, and by what numbers.

use std::fmt;

use crate::plain_text::counted;

/// A mask as CUDA reads it.
///
/// CUDA's rules, which differ from what one would guess:
///
/// - without the variable every device is visible; an empty one hides them all;
/// - an entry is a number, or the beginning of a UUID (`GPU-8932f937`) that belongs to one device alone;
/// - the first entry that names no device ends the list, without an error: `0,-1,1` is device 0;
/// - a device named twice hides all of them;
/// - the first entry decides whether all are numbers, `GPU-` or `MIG-`; one of another kind ends the list;
/// - of MIG instances only the first is used;
/// - a MIG instance may have its name of before driver 470, `MIG-GPU-…/1/0`: the UUID of its GPU, whole, and two numbers.
///
/// ```
/// use memtrack::driver::{MaskEnd, VisibleDevices};
///
/// let mask = VisibleDevices::parse(Some("2,0,-1,1"));
/// let devices = ["GPU-aa", "GPU-bb", "GPU-cc"];
/// let visible = mask.resolve(&devices);
/// assert_eq!(visible.devices, [2, 0]);
/// assert_eq!(visible.end, MaskEnd::NotADevice { entry: "-1".to_owned() });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleDevices {
    /// `None` without a mask.
    entries: Option<Vec<MaskEntry>>,
}

/// One entry of a mask.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MaskEntry {
    /// A device by its number in CUDA's order.
    Ordinal(u32),
    /// A GPU by the beginning of its UUID, with `GPU-`.
    Gpu(String),
    /// A MIG instance by the beginning of its UUID, with `MIG-`, or by its old name.
    Mig(String),
    /// Anything else, as it stands there.
    Invalid(String),
}

impl fmt::Display for MaskEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "{ordinal}"),
            Self::Gpu(text) | Self::Mig(text) | Self::Invalid(text) => f.write_str(text),
        }
    }
}

/// Why a mask shows no more devices than it does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskEnd {
    /// Every entry was used, or there is no mask.
    #[error("every entry names a device")]
    Complete,
    /// The variable is empty.
    #[error("the mask is empty, which hides every device")]
    Empty,
    /// An entry that is neither a number nor a UUID of the mask's kind.
    #[error("`{entry}` names no device and ends the mask")]
    NotADevice {
        /// The entry.
        entry: String,
    },
    /// A number beyond the devices there are.
    #[error("device {ordinal} is beyond the {} there {} and ends the mask", counted(*count as u64, "device"), if *count == 1 { "is" } else { "are" })]
    OutOfRange {
        /// The number.
        ordinal: u32,
        /// How many devices there are.
        count: usize,
    },
    /// No device's UUID begins so.
    #[error("no device's UUID begins with `{entry}`, which ends the mask")]
    NoSuchUuid {
        /// The entry.
        entry: String,
    },
    /// A MIG instance by its old name, whose numbers the driver does not tell.
    #[error(
        "`{entry}` names a MIG instance by numbers that the driver does not tell; name it by its UUID, which `nvidia-smi -L` shows"
    )]
    InstanceNotTold {
        /// The entry.
        entry: String,
    },
    /// The UUIDs of several devices begin so.
    #[error("the UUIDs of {count} devices begin with `{entry}`, which ends the mask")]
    AmbiguousUuid {
        /// The entry.
        entry: String,
        /// How many.
        count: usize,
    },
    /// A device that an entry before named already: nothing is visible.
    #[error("`{entry}` names a device for the second time, which hides every device")]
    Duplicate {
        /// The entry.
        entry: String,
    },
    /// CUDA uses one MIG instance at most.
    #[error("only the first MIG instance is used")]
    OneMigInstance,
}

/// What a mask makes of the devices there are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visible {
    /// Places in the list that was given, by the number a program sees: the first is its device 0.
    pub devices: Vec<usize>,
    /// Why there are no more.
    pub end: MaskEnd,
}

impl VisibleDevices {
    /// The variable's name.
    pub const VARIABLE: &'static str = "CUDA_VISIBLE_DEVICES";

    /// Reads the variable's value; `None` when it is not set.
    pub fn parse(value: Option<&str>) -> Self {
        let Some(value) = value else { return Self { entries: None } };
        if value.trim().is_empty() {
            return Self { entries: Some(Vec::new()) };
        }
        Self { entries: Some(value.split(',').map(|entry| MaskEntry::parse(entry.trim())).collect()) }
    }

    /// Reads this process's own variable.
    pub fn from_env() -> Self {
        // Text that is no UTF-8 is no device for CUDA either.
        Self::parse(std::env::var_os(Self::VARIABLE).map(|value| value.to_string_lossy().into_owned()).as_deref())
    }

    /// The entries as they stand there; `None` without a mask.
    pub fn entries(&self) -> Option<&[MaskEntry]> {
        self.entries.as_deref()
    }

    /// Applies the mask to devices given by UUID, in the order in which CUDA numbers them. MIG instances may stand among
    /// them; numbers count the others only.
    ///
    /// Old names of MIG instances are known only where they are the UUIDs, as with drivers of that time;
    /// [`cuda_numbers`](super::cuda_numbers()) knows them all.
    pub fn resolve<S: AsRef<str>>(&self, uuids: &[S]) -> Visible {
        self.resolve_with(uuids, |name| by_name(name, uuids))
    }

    /// The same, with another look-up of old names.
    pub(super) fn resolve_with<S: AsRef<str>>(
        &self,
        uuids: &[S],
        old_name: impl Fn(&str) -> Result<usize, MaskEnd>,
    ) -> Visible {
        let is_gpu = |place: &usize| !uuids[*place].as_ref().starts_with("MIG-");
        let gpus: Vec<usize> = (0..uuids.len()).filter(is_gpu).collect();
        let Some(entries) = &self.entries else { return Visible { devices: gpus, end: MaskEnd::Complete } };
        let Some(first) = entries.first() else { return Visible { devices: Vec::new(), end: MaskEnd::Empty } };
        let mut devices: Vec<usize> = Vec::new();
        let mut end = MaskEnd::Complete;
        for entry in entries {
            if matches!(first, MaskEntry::Mig(_)) && !devices.is_empty() {
                end = MaskEnd::OneMigInstance;
                break;
            }
            let found = match entry {
                _ if std::mem::discriminant(entry) != std::mem::discriminant(first) => {
                    Err(MaskEnd::NotADevice { entry: entry.to_string() })
                }
                MaskEntry::Invalid(text) => Err(MaskEnd::NotADevice { entry: text.clone() }),
                MaskEntry::Ordinal(ordinal) => match gpus.get(*ordinal as usize) {
                    Some(place) => Ok(*place),
                    None => Err(MaskEnd::OutOfRange { ordinal: *ordinal, count: gpus.len() }),
                },
                MaskEntry::Mig(name) if name.contains('/') => old_name(name),
                MaskEntry::Gpu(prefix) | MaskEntry::Mig(prefix) => by_uuid(prefix, uuids),
            };
            match found {
                Ok(place) if devices.contains(&place) => {
                    return Visible { devices: Vec::new(), end: MaskEnd::Duplicate { entry: entry.to_string() } };
                }
                Ok(place) => devices.push(place),
                Err(why) => {
                    end = why;
                    break;
                }
            }
        }
        Visible { devices, end }
    }
}

fn by_uuid<S: AsRef<str>>(prefix: &str, uuids: &[S]) -> Result<usize, MaskEnd> {
    let begins = |uuid: &str| uuid.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let matching: Vec<usize> = (0..uuids.len()).filter(|place| begins(uuids[*place].as_ref())).collect();
    match matching[..] {
        [] => Err(MaskEnd::NoSuchUuid { entry: prefix.to_owned() }),
        [place] => Ok(place),
        _ => Err(MaskEnd::AmbiguousUuid { entry: prefix.to_owned(), count: matching.len() }),
    }
}

/// By an old name, which is whole: `…/1/1` is not the beginning of `…/1/10`.
pub(super) fn by_name<S: AsRef<str>>(name: &str, names: &[S]) -> Result<usize, MaskEnd> {
    let found = names.iter().position(|known| known.as_ref().eq_ignore_ascii_case(name));
    found.ok_or_else(|| MaskEnd::NoSuchUuid { entry: name.to_owned() })
}

impl MaskEntry {
    fn parse(text: &str) -> Self {
        if text.starts_with("GPU-") {
            return Self::Gpu(text.to_owned());
        }
        if text.starts_with("MIG-") {
            return Self::Mig(text.to_owned());
        }
        // As C's strtoul: a sign, then digits, and whatever follows them is ignored.
        let digits = text.strip_prefix('+').unwrap_or(text);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        digits[..length].parse().map_or_else(|_| Self::Invalid(text.to_owned()), Self::Ordinal)
    }
}
