// Streams that are opened again when the connection or the service is lost.

const DELAYS = [500, 1000, 2000, 4000, 8000]; // milliseconds; the last one repeats

/**
 * The events of a stream. After a loss it is opened again, and gives all events from its first one,
 * after one of type `reconnecting`. A stream that was never open is not opened again.
 * @param {() => AsyncIterable<object>} open
 * @param {AbortSignal} signal ends it
 */
export async function* reconnecting(open, signal) {
  let isOpen = false;
  for (let losses = 0; ; losses += 1) {
    try {
      for await (const event of open()) {
        if (await isStopping(event)) break;
        if (event.type !== "created") losses = 0;
        isOpen = true;
        yield event;
        if (event.type === "ended") return;
      }
    } catch (error) {
      if (!isOpen || signal.aborted || !error.temporary) throw error;
    }
    yield { type: "reconnecting" };
    await sleep(DELAYS[Math.min(losses, DELAYS.length - 1)], signal);
  }
}

/** Whether a generation was interrupted because its service is being stopped. */
async function isStopping({ type, status }) {
  if (type !== "ended" || status !== "interrupted") return false;
  return !(await fetch("ready").catch(() => null))?.ok;
}

function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}
