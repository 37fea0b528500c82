// Search in pages that were opened from a folder. Browsers start no worker from file:, so the search
// runs in a hidden frame there. On a server this does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow, page = inside.document;
      this.ready = new Promise((resolve) => { inside.evenkeelReady = resolve; });
      window.addEventListener("message", (event) => {
        if (event.source !== inside) return;
        event.stopImmediatePropagation();
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      const absolute = new URL(url, location.href).href;
      page.open();
      page.write(`<!doctype html><base href="${absolute.replace(/"/g, "%22")}"><body><script>
        postMessage = (data) => parent.dispatchEvent(new MessageEvent("message", { data, source: window }));
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {
          const script = document.createElement("script");
          Object.assign(script, { src: url, onload: resolve, onerror: reject });
          document.body.append(script);
        })), Promise.resolve());
        onload = () => evenkeelReady();
        <\/script><script src="${absolute.replace(/"/g, "%22")}"><\/script>`);
      page.close();
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
}
