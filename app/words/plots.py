"""The words on and around plots: axes and readouts."""

BROWSER = {
    "plot_x": "computing time, seconds",
    "plot_y": "tokens written",
    "plot_rate": "tokens a second, over the last 2 s",
    "plot_seconds": "seconds of computing",
    "plot_seconds_short": "seconds of work",
    "plot_named": "{lane}, {seconds}\u00a0s",
    "plot_sooner": "{seconds} sooner",
    "plot_later": "{seconds} later",
    "plot_title": "Tokens over computing time",
    "plot_title_factor": "Tokens over computing time: {factor} times as fast",
    "plot_tokens": "Tokens",
    "plot_speed": "Tokens/s",
    "plot_table": "{lane}: {tokens} tokens in {seconds} s",
    "plot_csv": "Download the numbers as csv",
    "plot_failed": "The plots could not be loaded; these are the numbers. Reload the page to try again.",
    "plot_not_packed": "The plots could not be added to the file: it shows their numbers as tables.",
}
