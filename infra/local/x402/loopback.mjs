// Makes every server of this stack listen on 127.0.0.1 only.

const HOST = '127.0.0.1';

/** Starts `app` on `port`, or on a free port if `port` is 0. Returns the URL once connections are accepted. */
export function listen(app, port) {
  return new Promise((resolve, reject) => {
    const server = app.listen(port, HOST, (error) => {
      if (error) reject(error);
      else resolve(`http://${HOST}:${server.address().port}`);
    });
  });
}
