//! The option `on_exceed`: what a breached budget does.

use crate::suggest::nearest;
use crate::text::bare;
use crate::values::{equals, must_be_quoted, unquoted};
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::parse::ParseStream;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, ExprPath, Ident, Lit};

/// What a breached budget does.
pub(crate) enum Reaction {
    Event,
    Panic,
    /// Calls a function.
    Call(ExprPath),
}

impl Reaction {
    /// Reads `= "event"`, `= "panic"` or `= path` behind the word.
    pub(crate) fn read(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        const WORDS: [&str; 2] = ["event", "panic"];
        const EXAMPLE: &str = "`\"event\"`, `\"panic\"` or the path of a function that takes a `&Exceeded`";
        equals(word, EXAMPLE, input)?;
        match bare(input.parse()?) {
            Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => match literal.value().as_str() {
                "event" => Ok(Self::Event),
                "panic" => Ok(Self::Panic),
                text => {
                    let hint = match nearest(text, &WORDS) {
                        Some(known) => format!("did you mean `{known}`?"),
                        None => format!("it needs {EXAMPLE}"),
                    };
                    Err(syn::Error::new_spanned(&literal, format!("unknown reaction `{text}`; {hint}")))
                }
            },
            Expr::Path(path) => match unquoted(&path, &WORDS) {
                Some(reaction) => Err(must_be_quoted(&path, word, reaction)),
                None => Ok(Self::Call(path)),
            },
            other => Err(syn::Error::new_spanned(other, format!("`{word}` needs {EXAMPLE}"))),
        }
    }

    /// The reaction as a constant expression, given the path of the runtime's private module.
    pub(crate) fn tokens(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Event => quote_spanned!(Span::mixed_site()=> #private::OnExceed::Event),
            Self::Panic => quote_spanned!(Span::mixed_site()=> #private::OnExceed::Panic),
            Self::Call(path) => {
                let place = Span::mixed_site().located_at(path.span());
                quote_spanned!(place=> #private::OnExceed::Call(#path))
            }
        }
    }
}
