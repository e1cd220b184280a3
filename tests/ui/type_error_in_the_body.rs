use memtrack::track_memory;

#[track_memory]
fn a() -> u32 {
    let x: u32 = "x";
    x
}

#[track_memory]
fn b() -> u32 {
    "y"
}

#[track_memory]
async fn c(n: u32) -> u32 {
    if n == 1 {
        return "early";
    }
    "z"
}

#[track_memory(err)]
fn d() -> Result<u32, String> {
    let w: u32 = "w";
    Ok(w)
}

#[track_memory]
fn e() -> u32 {}

#[track_memory]
fn f(x: String) -> String {
    drop(x);
    x
}

fn main() {}
