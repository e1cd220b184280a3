//! The mistakes found so far, so that one compilation can report all of them.

use proc_macro2::TokenStream;
use quote::ToTokens;
use std::fmt::Display;

/// A collector of errors. Every way out of an expansion ends in [`Errors::finish`].
#[derive(Default)]
pub(crate) struct Errors {
    combined: Option<syn::Error>,
}

impl Errors {
    /// Adds a mistake at the tokens that make it.
    pub(crate) fn push_at(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds a mistake that already knows its place.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.combined {
            Some(combined) => combined.combine(error),
            None => self.combined = Some(error),
        }
    }

    /// `compile_error!`s for all mistakes, or nothing when there were none.
    pub(crate) fn finish(self) -> Option<TokenStream> {
        self.combined.map(|error| error.to_compile_error())
    }
}
