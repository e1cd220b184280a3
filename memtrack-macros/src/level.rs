//! The level of a span or of an event.

use crate::limit::whole;
use crate::prologue::at;
use crate::suggest::nearest;
use crate::text::bare;
use crate::values::{equals, must_be_quoted, unquoted};
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::parse::ParseStream;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, ExprPath, Ident, Lit};

/// The level's words, in tracing's order of numbers, 1 to 5.
const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// A level.
pub(crate) enum Level {
    /// One of tracing's, by its name in capitals, at the user's literal.
    Known(Ident),
    Constant(ExprPath),
}

impl Level {
    /// Reads `= level` behind the word.
    pub(crate) fn read(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        equals(word, "a level, as in `level = \"debug\"`", input)?;
        let known = |index: usize, span| Self::Known(Ident::new(&LEVELS[index].to_uppercase(), span));
        match bare(input.parse()?) {
            Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => {
                let text = literal.value().to_lowercase();
                if let Some(index) = LEVELS.iter().position(|level| *level == text) {
                    return Ok(known(index, literal.span()));
                }
                let hint = match nearest(&text, &LEVELS) {
                    Some(level) => format!("did you mean `{level}`?"),
                    None => "the levels are `trace`, `debug`, `info`, `warn` and `error`".to_owned(),
                };
                Err(syn::Error::new_spanned(&literal, format!("unknown level `{text}`; {hint}")))
            }
            Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) => match whole(&literal)? {
                Ok(number @ 1..=5) => Ok(known(number as usize - 1, literal.span())),
                _ => Err(syn::Error::new_spanned(&literal, "a level's number is 1 (trace) to 5 (error)")),
            },
            Expr::Path(path) => match unquoted(&path, &LEVELS) {
                Some(level) => Err(must_be_quoted(&path, word, level)),
                None => Ok(Self::Constant(path)),
            },
            other => Err(syn::Error::new_spanned(other, "`level` needs a name, a number or the path of a constant")),
        }
    }

    /// The level as an expression, given the path of the runtime's private module.
    pub(crate) fn tokens(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Known(name) => quote_spanned!(name.span()=> #private::Level::#name),
            Self::Constant(path) => {
                let place = Span::mixed_site().located_at(path.span());
                let private = at(private, place);
                quote_spanned!(place=> #private::level(#path))
            }
        }
    }
}
