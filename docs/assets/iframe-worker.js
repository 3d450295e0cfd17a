// The search of the site runs in a worker, which a browser refuses to a page opened from disk (file:). There, this class runs the
// worker's script in a hidden frame instead. The theme would load the same from a network.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    frame.title = "search";
    document.body.append(frame);
    this.frame = frame;
    this.window = frame.contentWindow;
    addEventListener("message", (event) => {
      if (event.source !== this.window) return;
      const message = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    });
    const inside = frame.contentDocument;
    const setting = inside.createElement("script");
    setting.textContent = `
      self.postMessage = (data) => parent.postMessage(data, "*");
      self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
        const script = document.createElement("script");
        Object.assign(script, { src: url, onload: done, onerror: failed });
        document.body.append(script);
      })), Promise.resolve());`;
    inside.body.append(setting);
    this.ready = new Promise((done) => {
      const script = inside.createElement("script");
      Object.assign(script, { src: url, onload: done });
      inside.body.append(script);
    });
  }

  postMessage(data) {
    // An event, not postMessage: the frame must see its parent's messages and not its own.
    this.ready.then(() => this.window.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = IFrameWorker;
