//! The code between the arguments and the body: the gates, the span, and what the scope needs.

use crate::args::{Args, Device};
use crate::arguments;
use crate::function::Function;
use crate::site;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned as _;

/// A field of the span.
pub(crate) struct SpanField {
    /// Its name, a constant expression.
    pub(crate) name: TokenStream,
    /// Its value, a reference; none if it is only declared.
    pub(crate) value: Option<TokenStream>,
}

/// The path of the runtime's private module; everything that generated code names starts there.
pub(crate) fn private_path(args: &Args) -> TokenStream {
    match &args.krate {
        Some(krate) => quote_spanned!(Span::mixed_site()=> #krate::__private),
        None => quote_spanned!(Span::mixed_site()=> ::memtrack::__private),
    }
}

/// The same tokens, naming what they named, as if they stood at `place`: for calls that rustc shall report there.
pub(crate) fn at(tokens: &TokenStream, place: Span) -> TokenStream {
    let moved = tokens.clone().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    moved.collect()
}

/// A variable of the generated code, which no name of the user can meet.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// The prologue. `open` is what to do with an activation that is to be measured; it is given the expressions for the
/// span, the call site, the phase and what to measure, separated by commas.
pub(crate) fn prologue(args: &Args, function: &Function, open: impl FnOnce(TokenStream) -> TokenStream) -> TokenStream {
    let private = private_path(args);
    let (site, span, phase, sampled) =
        (local("__MEMTRACK_SITE"), local("__span"), local("__phase"), local("__sampled"));
    let definition = site::definition(args, function, &private, &site);
    let (bind_phase, phase_value) = phase_tokens(args, &private, &phase);
    let (span_definitions, make_span) = span_tokens(args, function, &private, phase_value);
    let (bind_sampled, make_span) = match &args.sample {
        None => (TokenStream::new(), make_span),
        Some(rate) => {
            let rate = rate.tokens(&private);
            let bind = quote_spanned!(Span::mixed_site()=> let #sampled = #private::Site::samples(&#site, #rate););
            let made = quote_spanned! {Span::mixed_site()=>
                if #private::is_sampled(#sampled) { #make_span } else { #private::Span::none() }
            };
            (bind, made)
        }
    };
    let sampled = match &args.sample {
        None => quote_spanned!(Span::mixed_site()=> #private::ALL_CALLS),
        Some(_) => quote_spanned!(Span::mixed_site()=> #sampled),
    };
    let follows_from = args.follows_from.as_ref().map(|causes| {
        let place = Span::mixed_site().located_at(causes.span());
        let private = at(&private, place);
        quote_spanned!(place=> #private::follows_from(&#span, #causes);)
    });
    // In a statement of its own, which ends the life of its temporaries before anything opens.
    let measured = measured_tokens(args, &private);
    // Counted, so that totals of a sampled function can say of how many calls they are.
    let pass_over = args
        .sample
        .as_ref()
        .map(|_| quote_spanned!(Span::mixed_site()=> else { #private::Site::passes_over(&#site); }));
    let uses = arguments::uses(args, &private);
    // Told as a literal: the compiler does not look into the site's `static`.
    let needs_no_span = args.has_budget() || args.oom.event || args.oom.snapshot;
    let subject = local("__measured");
    let open = open(quote_spanned!(Span::mixed_site()=> #span, &#site, #phase, #sampled, #subject));
    quote_spanned! {Span::mixed_site()=>
        if #private::enabled() {
            #definition
            #span_definitions
            #uses
            #bind_phase
            #bind_sampled
            let #span = #make_span;
            #follows_from
            if #private::measures(&#span, #needs_no_span, #phase) {
                let #subject = #measured;
                #open
            } #pass_over
        }
    }
}

/// The variable that holds the phase, and the phase as the value of the span's field, if it is given.
fn phase_tokens(args: &Args, private: &TokenStream, phase: &Ident) -> (TokenStream, Option<TokenStream>) {
    let name = local("__phase_name");
    match &args.phase {
        Some(given) => {
            let given = given.in_const(private);
            let bind = quote_spanned! {Span::mixed_site()=>
                let #name: #private::Name = #given;
                let #phase = #private::phase(#name);
            };
            (bind, Some(quote_spanned!(Span::mixed_site()=> #private::value(&#name))))
        }
        None => (quote_spanned!(Span::mixed_site()=> let #phase = #private::no_phase();), None),
    }
}

/// The span with all its fields: the definitions of its description, and the expression that makes it.
fn span_tokens(
    args: &Args,
    function: &Function,
    private: &TokenStream,
    phase: Option<TokenStream>,
) -> (TokenStream, TokenStream) {
    let (name, level) = (local("__MEMTRACK_NAME"), local("__MEMTRACK_LEVEL"));
    let (callsite, description) = (local("__MEMTRACK_CALLSITE"), local("__MEMTRACK_DESCRIPTION"));
    let given_level = args
        .level
        .as_ref()
        .map_or_else(|| quote_spanned!(Span::mixed_site()=> #private::Level::INFO), |level| level.tokens(private));
    let target = target_tokens(args, private);
    let source = site::source(function);
    // The runtime knows its own fields by their order.
    let own = own_fields(args)
        .into_iter()
        .map(|field| SpanField { name: quote!(#field), value: phase.clone().filter(|_| field == "mem.phase") });
    let arguments = arguments::fields(args, function, private);
    let given = args.fields.iter().map(|field| field.described(private));
    let fields: Vec<SpanField> = own.chain(arguments).chain(given).collect();
    let names = fields.iter().map(|field| &field.name);
    let values = fields.iter().enumerate().filter_map(|(place, field)| {
        let value = field.value.as_ref()?;
        Some(quote_spanned!(Span::mixed_site()=> (#place, #value)))
    });
    let definitions = quote_spanned! {Span::mixed_site()=>
        const #level: #private::Level = #given_level;
        static #callsite: #private::Callsite = #private::Callsite::new(&#description);
        static #description: #private::Description =
            #private::description(#name, #target, #level, #source, &[#(#names),*], &#callsite);
    };
    let made = match &args.parent {
        None => quote_spanned!(Span::mixed_site()=> #private::span(&#callsite, &[#(#values),*])),
        Some(parent) => {
            let place = Span::mixed_site().located_at(parent.span());
            let private = at(private, place);
            quote_spanned!(place=> #private::span_in(&#callsite, #parent, &[#(#values),*]))
        }
    };
    let made = quote_spanned! {Span::mixed_site()=>
        if #private::is_wanted(&#callsite, #level) { #made } else { #private::Span::none() }
    };
    (definitions, made)
}

/// The target of the span and of the function's events.
pub(crate) fn target_tokens(args: &Args, private: &TokenStream) -> TokenStream {
    match &args.target {
        Some(target) => target.checked(private),
        None => quote_spanned!(Span::mixed_site()=> ::core::module_path!()),
    }
}

/// The names of the fields that memtrack writes, in the order in which the runtime's `record` expects them.
fn own_fields(args: &Args) -> Vec<&'static str> {
    let mut names = vec!["mem.device", "mem.phase"];
    if args.columns.device {
        names.extend([
            "mem.before",
            "mem.after",
            "mem.delta",
            "mem.peak",
            "mem.peak_delta",
            "mem.allocs",
            "mem.frees",
            "mem.retries",
            "mem.ooms",
        ]);
    }
    names.push("mem.outcome");
    if args.columns.own {
        names.extend(["mem.self.delta", "mem.self.peak", "mem.self.allocs"]);
    }
    if args.columns.device && args.columns.own {
        names.extend(["mem.foreign", "mem.reserved.delta"]);
    }
    if matches!(args.device, Some(Device::Several(_) | Device::All)) {
        names.push("mem.devices");
    }
    if args.sample.is_some() {
        names.push("mem.sampled");
    }
    names
}

/// What is measured, as an expression.
fn measured_tokens(args: &Args, private: &TokenStream) -> TokenStream {
    // At the user's expression, where an error about its type belongs.
    let call = |function: &str, expression: &syn::Expr| {
        let place = Span::mixed_site().located_at(expression.span());
        let (private, function) = (at(private, place), Ident::new(function, place));
        quote_spanned!(place=> #private::#function(&(#expression)))
    };
    match &args.device {
        Some(Device::One(device)) => call("allocator_of", device),
        Some(Device::Several(devices)) => call("allocators_of", devices),
        Some(Device::All) => quote_spanned!(Span::mixed_site()=> #private::all_allocators()),
        None => quote_spanned!(Span::mixed_site()=> #private::current_allocator()),
    }
}
