use memtrack::track_memory;

async fn plain(text: &str) -> usize {
    text.len()
}

#[track_memory]
async fn tracked(text: &str) -> usize {
    text.len()
}

fn main() {
    let (first, second);
    let text = String::from("text");
    first = plain(&text);
    second = tracked(&text);
    drop((first, second));
}
