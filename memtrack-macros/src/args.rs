//! The attribute's options.
//!
//! A new option needs its word in [`OPTIONS`], its place in [`Args`] and its line in [`Args::read_option`]; unknown
//! words, repeated options and missing values are handled for all alike.

use crate::errors::Errors;
use crate::fields::{Field, read_fields};
use crate::level::Level;
use crate::limit::{Limit, Rate};
use crate::lists::{ArgumentNames, Columns, OomActions};
use crate::reaction::Reaction;
use crate::report::Report;
use crate::suggest::nearest;
use crate::text::Text;
use crate::values::{path, refuse_value, skip_to_comma, text, value};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Expr, Ident, LitStr, Path, Token, token};

/// Every option's word, for "did you mean".
const OPTIONS: &[&str] = &[
    "name",
    "phase",
    "device",
    "devices",
    "fields",
    "args",
    "skip",
    "skip_all",
    "level",
    "target",
    "parent",
    "follows_from",
    "err",
    "ret",
    "future",
    "max_delta",
    "max_peak",
    "max_allocs",
    "leak_check",
    "on_exceed",
    "sample",
    "oom",
    "min_delta",
    "only",
    "crate",
];

/// The options that set a budget.
const BUDGETS: [&str; 4] = ["max_delta", "max_peak", "max_allocs", "leak_check"];

/// Options of which only one can be given.
pub(crate) const EXCLUSIVE: &[(&str, &str)] =
    &[("device", "devices"), ("args", "skip"), ("skip", "skip_all"), ("args", "skip_all")];

/// The options given.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) name: Option<Text>,
    pub(crate) phase: Option<Text>,
    pub(crate) device: Option<Device>,
    pub(crate) fields: Vec<Field>,
    pub(crate) arguments: ArgumentNames,
    pub(crate) level: Option<Level>,
    pub(crate) target: Option<Text>,
    pub(crate) parent: Option<Expr>,
    pub(crate) follows_from: Option<Expr>,
    pub(crate) err: Option<Report>,
    pub(crate) ret: Option<Report>,
    /// The word `future`.
    pub(crate) future: Option<Ident>,
    pub(crate) max_delta: Option<Limit>,
    pub(crate) max_peak: Option<Limit>,
    pub(crate) max_allocs: Option<Limit>,
    pub(crate) leak_check: Option<Limit>,
    /// The word `on_exceed`, and what it asks for.
    pub(crate) on_exceed: Option<(Ident, Reaction)>,
    pub(crate) sample: Option<Rate>,
    pub(crate) oom: OomActions,
    pub(crate) min_delta: Option<Limit>,
    pub(crate) columns: Columns,
    /// Whether a budget's word was read, be its value right or wrong.
    pub(crate) names_a_budget: bool,
    pub(crate) krate: Option<Path>,
}

/// What the options `device` and `devices` name.
pub(crate) enum Device {
    One(Expr),
    Several(Expr),
    /// `devices(all)`.
    All,
}

impl Args {
    /// Reads the options; what is wrong goes to `errors`, and reading goes on after the next comma.
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let read = |input: ParseStream<'_>| {
            let mut seen: Vec<String> = Vec::new();
            while !input.is_empty() {
                if let Err(error) = args.read_option(input, &mut seen, errors) {
                    errors.push(error);
                    skip_to_comma(input)?;
                } else if !input.is_empty() && !input.peek(Token![,]) {
                    errors.push(input.error("expected `,` before the next option"));
                    skip_to_comma(input)?;
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    fn read_option(&mut self, input: ParseStream<'_>, seen: &mut Vec<String>, errors: &mut Errors) -> syn::Result<()> {
        if input.peek(LitStr) {
            let literal: LitStr = input.parse()?;
            once("name", &literal, seen)?;
            self.name = Some(Text::literal("name", literal)?);
            return Ok(());
        }
        if !input.peek(Ident::peek_any) {
            return Err(input.error("expected an option, as in `#[track_memory(phase = \"forward\")]`"));
        }
        let word = input.call(Ident::parse_any)?;
        let option = word.to_string();
        if !OPTIONS.contains(&option.as_str()) {
            return Err(unknown(&word));
        }
        // Reported where the option is read and not at the end: the value is then skipped with it.
        once(&option, &word, seen)?;
        self.names_a_budget |= BUDGETS.contains(&option.as_str());
        match option.as_str() {
            "name" => self.name = Some(text(&word, input)?),
            "phase" => self.phase = Some(text(&word, input)?),
            "target" => self.target = Some(text(&word, input)?),
            "device" => {
                let device = value(&word, "an allocator, as in `device = &self.allocator`", input)?;
                self.device = Some(Device::One(device));
            }
            "devices" => self.device = Some(Device::read_several(&word, input)?),
            "level" => self.level = Some(Level::read(&word, input)?),
            "parent" => self.parent = Some(value(&word, "a span, as in `parent = &self.span`", input)?),
            "follows_from" => {
                self.follows_from = Some(value(&word, "spans, as in `follows_from = [&self.span]`", input)?);
            }
            "crate" => self.krate = Some(path(&word, input)?),
            "fields" => self.fields = read_fields(&word, input, errors)?,
            "args" => self.arguments = ArgumentNames::read_args(&word, input, errors)?,
            "skip" => self.arguments = ArgumentNames::read_skip(&word, input, errors)?,
            "skip_all" => refuse_value(&word, input)?,
            "err" => self.err = Some(Report::read(word, input, errors)?),
            "ret" => self.ret = Some(Report::read(word, input, errors)?),
            "max_delta" => self.max_delta = Some(Limit::read_size(&word, input)?),
            "max_peak" => self.max_peak = Some(Limit::read_size(&word, input)?),
            "min_delta" => self.min_delta = Some(Limit::read_size(&word, input)?),
            "max_allocs" => self.max_allocs = Some(Limit::read_count(&word, input)?),
            "leak_check" => self.leak_check = Some(Limit::read_allowance(&word, input)?),
            "on_exceed" => self.on_exceed = Some((word.clone(), Reaction::read(&word, input)?)),
            "sample" => self.sample = Some(Rate::read(&word, input)?),
            "oom" => self.oom = OomActions::read(&word, input, errors)?,
            "only" => self.columns = Columns::read(&word, input, errors)?,
            _ => {
                refuse_value(&word, input)?;
                self.future = Some(word);
            }
        }
        Ok(())
    }

    /// Whether a budget is given, which needs to see how the function ends.
    pub(crate) fn has_budget(&self) -> bool {
        self.max_delta.is_some() || self.max_peak.is_some() || self.max_allocs.is_some() || self.leak_check.is_some()
    }

    /// Whether an event tells of the returned value, and not only the outcome.
    pub(crate) fn tells_value(&self) -> bool {
        self.ret.is_some() || self.err.as_ref().is_some_and(Report::has_event)
    }

    /// Whether the returned value is looked at.
    pub(crate) fn inspects_value(&self) -> bool {
        self.err.is_some() || self.ret.is_some()
    }
}

impl Device {
    fn read_several(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        const EXAMPLE: &str = "allocators, as in `devices = [&first, &second]` or `devices(all)`";
        if !input.peek(token::Paren) {
            return value(word, EXAMPLE, input).map(Self::Several);
        }
        let content;
        syn::parenthesized!(content in input);
        let all: Option<Ident> = content.parse()?;
        match all {
            Some(all) if all == "all" && content.is_empty() => Ok(Self::All),
            _ => Err(syn::Error::new_spanned(word, format!("`devices` needs {EXAMPLE}"))),
        }
    }
}

fn once(option: &str, place: &impl ToTokens, seen: &mut Vec<String>) -> syn::Result<()> {
    if seen.iter().any(|earlier| earlier == option) {
        return Err(syn::Error::new_spanned(place, format!("`{option}` given twice")));
    }
    let rivals = EXCLUSIVE.iter().filter_map(|&(one, other)| match option {
        _ if option == one => Some(other),
        _ if option == other => Some(one),
        _ => None,
    });
    let rival = rivals.into_iter().find(|rival| seen.iter().any(|earlier| earlier == rival));
    seen.push(option.to_owned());
    match rival {
        Some(rival) => Err(syn::Error::new_spanned(place, format!("use one of `{rival}` and `{option}`"))),
        None => Ok(()),
    }
}

fn unknown(word: &Ident) -> syn::Error {
    let text = word.to_string();
    let message = match nearest(&text, OPTIONS) {
        Some(option) => format!("unknown option `{text}`; did you mean `{option}`?"),
        None => {
            let all = OPTIONS.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ");
            format!("unknown option `{text}`; the options are {all}")
        }
    };
    syn::Error::new_spanned(word, message)
}
