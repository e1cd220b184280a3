//! The forms in which a shape is compiled, and the editions.

use std::fmt;

/// An edition of Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edition {
    E2018,
    E2021,
    E2024,
}

impl Edition {
    pub(crate) const ALL: [Self; 3] = [Self::E2018, Self::E2021, Self::E2024];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|edition| edition.to_string() == text)
    }
}

impl fmt::Display for Edition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::E2018 => "2018",
            Self::E2021 => "2021",
            Self::E2024 => "2024",
        })
    }
}

/// What stands in the place of a shape's markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// A comment: the function as its author wrote it.
    Plain,
    /// The attribute with the marker's own options.
    Attribute,
    /// The attribute with `err`, where the marker says that it can stand.
    Err,
    Phase,
    Device,
}

impl Form {
    pub(crate) const ALL: [Self; 5] = [Self::Plain, Self::Attribute, Self::Err, Self::Phase, Self::Device];
    pub(crate) const ANNOTATED: [Self; 4] = [Self::Attribute, Self::Err, Self::Phase, Self::Device];

    /// The word for people, in shapes' headers and in the matrix.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Attribute => "@",
            Self::Err => "err",
            Self::Phase => "phase",
            Self::Device => "device",
        }
    }

    /// The option that the form adds, after the words of the options beside which it cannot stand.
    pub(crate) const fn option(self) -> Option<(&'static [&'static str], &'static str)> {
        match self {
            Self::Plain | Self::Attribute => None,
            Self::Err => Some((&["err"], "err")),
            Self::Phase => Some((&["phase"], "phase = \"step\"")),
            Self::Device => Some((&["device", "devices"], "device = ::shape_support::device()")),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}
