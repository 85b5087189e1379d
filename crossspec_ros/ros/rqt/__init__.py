"""The rqt plugin `crossspec`; what it draws, and where, needs neither ROS nor Qt."""
