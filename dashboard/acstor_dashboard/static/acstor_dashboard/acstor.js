/* Keeps parts of ACStor's pages fresh while somebody sees them: data-acstor-refresh is the distance in
 * seconds. The page itself is asked again, and the part of the same id takes the place of this one; not
 * while the keyboard is in it. What could not be had is pale, and asked for at growing distances. */
(function () {
  'use strict';

  var LONGEST_SECONDS = 60;

  function parse(text) {
    return new DOMParser().parseFromString(text, 'text/html');
  }

  // Say what failed, as the page that was fetched says it, and no more what failed before.
  function tell(part, failed) {
    var own = part.closest('.acstor');
    own.querySelectorAll('[data-acstor-failure]').forEach(function (old) { old.remove(); });
    Array.prototype.slice.call(failed).reverse().forEach(function (each) {
      own.insertBefore(document.importNode(each, true), own.firstChild);
    });
  }

  function watch(part, failures) {
    var seconds = Number(part.getAttribute('data-acstor-refresh'));
    if (!part.id || !(seconds > 0)) { return; }
    var pause = Math.min(seconds * Math.pow(2, failures), LONGEST_SECONDS);
    window.setTimeout(function () { look(part, failures); }, pause * 1000);
  }

  function look(part, failures) {
    if (!document.contains(part)) { return; }
    if (document.hidden || part.contains(document.activeElement)) { watch(part, failures); return; }
    var headers = {'Accept': 'text/html'};
    var etag = part.getAttribute('data-acstor-etag');
    if (etag) { headers['If-None-Match'] = etag; }
    window.fetch(window.location.href, {
      credentials: 'same-origin', headers: headers, redirect: 'manual', cache: 'no-store'
    }).then(function (response) {
      if (response.status === 304) {
        part.classList.remove('acstor-stale');
        tell(part, []);
        watch(part, 0);
        return null;
      }
      if (response.type === 'opaqueredirect') { window.location.reload(); return null; } // to the login
      if (!response.ok) { throw new Error(String(response.status)); }
      return response.text().then(function (text) {
        var page = parse(text);
        var fresh = page.getElementById(part.id);
        var failed = page.querySelectorAll('[data-acstor-failure]');
        tell(part, failed);
        if (failed.length || !fresh) { throw new Error('no part ' + part.id); }
        var node = document.importNode(fresh, true);
        part.parentNode.replaceChild(node, part);
        watch(node, 0);
      });
    }).catch(function () {
      part.classList.add('acstor-stale');
      watch(part, failures + 1);
    });
  }

  document.addEventListener('DOMContentLoaded', function () {
    Array.prototype.forEach.call(
      document.querySelectorAll('[data-acstor-refresh]'),
      function (part) { watch(part, 0); }
    );
  });
}());
