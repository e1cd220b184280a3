use memtrack::track_memory_block;

async fn one() -> u32 {
    1
}

async fn f() -> u32 {
    track_memory_block!("a", {
        let later = async { one().await };
        let closure = async || one().await;
        println!("{} {:?}", one().await, async move { one().await }.await);
        later.await + closure().await
    })
}

fn main() {
    drop(f());
}
