use async_trait::async_trait;
use memtrack::track_memory;

#[async_trait]
trait Load {
    async fn load(&self) -> Result<u8, ()>;
}

struct Disk;

#[async_trait]
impl Load for Disk {
    #[track_memory(err)]
    async fn load(&self) -> Result<u8, ()> {
        Ok(1)
    }
}

fn main() {}
