//! What happens to a value that is about to be returned: the options `err` and `ret`.

use crate::args::Args;
use crate::prologue::{at, local, target_tokens};
use crate::report::{Format, Report};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Ident, ReturnType, Signature};

/// An expression that tells what it is asked to tell of the value behind the reference `value`, and gives the outcome.
///
/// An error about the value's type is shown at the return type.
pub(crate) fn inspection(args: &Args, private: &TokenStream, signature: &Signature, value: &Ident) -> TokenStream {
    let target = target_tokens(args, private);
    let place = match &signature.output {
        ReturnType::Type(_, output) => Span::mixed_site().located_at(output.span()),
        ReturnType::Default => Span::mixed_site(),
    };
    let part = local("__part");
    let event = |report: &Report, key: &str, default_level: TokenStream, default_format: Format| {
        let level = report.level_tokens(private, default_level);
        let shown = report.value_tokens(private, &part, default_format);
        quote_spanned!(Span::mixed_site()=> #private::event!(target: #target, #level, #key = #shown))
    };
    // The word alone only tells the outcomes apart: it asks nothing of the error's type.
    let error = args.err.as_ref().filter(|err| err.has_event()).map(|err| {
        let level = quote_spanned!(Span::mixed_site()=> #private::Level::ERROR);
        let event = event(err, "error", level, Format::Display(err.word.clone()));
        quote_spanned!(Span::mixed_site()=> #private::tell_error(#value, |#part| { #event }); )
    });
    let returned = args.ret.as_ref().map(|ret| {
        let level = args
            .level
            .as_ref()
            .map_or_else(|| quote_spanned!(Span::mixed_site()=> #private::Level::INFO), |level| level.tokens(private));
        let event = event(ret, "return", level, Format::Debug(ret.word.clone()));
        let tell = if args.err.is_some() { "tell_success" } else { "tell_value" };
        let tell = Ident::new(tell, Span::mixed_site());
        quote_spanned!(Span::mixed_site()=> #private::#tell(#value, |#part| { #event }); )
    });
    let outcome = match &args.err {
        Some(_) => {
            let (private, value) = (at(private, place), at(&value.to_token_stream(), place));
            quote_spanned!(place=> #private::outcome_of(#value))
        }
        None => quote_spanned!(Span::mixed_site()=> #private::outcome_ok(#value)),
    };
    quote_spanned!(Span::mixed_site()=> { #error #returned #outcome })
}

/// The function that judges what a future gives.
pub(crate) fn judge(args: &Args, private: &TokenStream, signature: &Signature) -> TokenStream {
    let value = local("__value");
    if !args.inspects_value() {
        // Not the function by its path, which clippy takes for a `static` that is changed.
        return quote_spanned!(Span::mixed_site()=> |#value| #private::outcome_ok(#value));
    }
    let inspection = inspection(args, private, signature, &value);
    quote_spanned!(Span::mixed_site()=> |#value| #inspection)
}
